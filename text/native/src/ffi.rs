//! The C ABI. Every function catches panics (onig gives up with one on very long runs of spaces) and returns a status;
//! on failure the message is in `out`.
use crate::result::Result;
use crate::stream::{byte_level_bytes, Stream};
use crate::template::{ChatTemplate, Clock, Raised};
use crate::tokenizer::{Controls, Tok};
use crate::tracked::Tracker;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{Arc, Once};

/// Memory of this library: give it back with onw_bytes_free.
#[repr(C)]
pub struct Bytes {
    data: *mut u8,
    size: usize,
}

#[repr(C)]
pub struct Encoded {
    ids: *mut u32,
    offsets: *mut usize, // begin and end of each token in bytes of the text
    size: usize,
}

pub const OK: i32 = 0;
pub const FAILED: i32 = 1;
pub const PANICKED: i32 = 2;
pub const RAISED: i32 = 3; // a chat template's own raise_exception

type Handle = Arc<Tok>;

impl Bytes {
    pub fn from(text: impl Into<Vec<u8>>) -> Bytes {
        let boxed = text.into().into_boxed_slice();
        let size = boxed.len();
        Bytes { data: Box::into_raw(boxed) as *mut u8, size }
    }
}

fn leak<T>(values: Vec<T>) -> *mut T {
    Box::into_raw(values.into_boxed_slice()) as *mut T
}

unsafe fn unleak<T>(data: *mut T, size: usize) {
    if !data.is_null() {
        drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut(data, size)));
    }
}

pub unsafe fn bytes<'a>(data: *const u8, size: usize) -> &'a [u8] {
    if size == 0 {
        return &[];
    }
    std::slice::from_raw_parts(data, size)
}

pub unsafe fn text<'a>(data: *const u8, size: usize) -> Result<&'a str> {
    std::str::from_utf8(bytes(data, size)).map_err(|e| format!("the text is not UTF-8 at byte {}", e.valid_up_to()).into())
}

unsafe fn slice<'a, T>(data: *const T, size: usize) -> &'a [T] {
    if size == 0 {
        return &[];
    }
    std::slice::from_raw_parts(data, size)
}

/// Runs `body`; its failure or panic becomes a status and a message.
pub fn guarded(out: *mut Bytes, body: impl FnOnce() -> Result<()>) -> i32 {
    static SILENT: Once = Once::new();
    SILENT.call_once(|| std::panic::set_hook(Box::new(|_| {})));
    let (status, message) = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return OK,
        Ok(Err(error)) => (if error.is::<Raised>() { RAISED } else { FAILED }, error.to_string()),
        Err(panic) => {
            let message = panic.downcast_ref::<String>().map(|s| s.as_str());
            (PANICKED, message.or(panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without words").to_owned())
        }
    };
    unsafe { *out = Bytes::from(message) };
    status
}

#[no_mangle]
pub unsafe extern "C" fn onw_bytes_free(bytes: Bytes) {
    unleak(bytes.data, bytes.size);
}

#[no_mangle]
pub unsafe extern "C" fn onw_encoded_free(encoded: Encoded) {
    unleak(encoded.ids, encoded.size);
    unleak(encoded.offsets, encoded.size * 2);
}

#[no_mangle]
pub unsafe extern "C" fn onw_tokenizer_new(json: *const u8, size: usize, tok: *mut *mut Handle, out: *mut Bytes) -> i32 {
    guarded(out, || {
        *tok = Box::into_raw(Box::new(Arc::new(Tok::from_json(bytes(json, size))?)));
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn onw_tokenizer_free(tok: *mut Handle) {
    if !tok.is_null() {
        let _ = catch_unwind(AssertUnwindSafe(|| drop(Box::from_raw(tok))));
    }
}

/// `controls`: 0 none, 1 all, 2 outside of the `protected_size` pairs (begin, end).
#[no_mangle]
pub unsafe extern "C" fn onw_encode(
    tok: &Handle, data: *const u8, size: usize, controls: i32, protected: *const usize, protected_size: usize,
    encoded: *mut Encoded, out: *mut Bytes,
) -> i32 {
    guarded(out, || {
        let ranges: Vec<_> = slice(protected, protected_size * 2).chunks(2).map(|r| (r[0], r[1])).collect();
        let controls = match controls {
            0 => Controls::None,
            1 => Controls::All,
            _ => Controls::Outside(&ranges),
        };
        let encoding = tok.encode(text(data, size)?, controls)?;
        let offsets: Vec<usize> = encoding.get_offsets().iter().flat_map(|o| [o.0, o.1]).collect();
        let ids = encoding.get_ids().to_vec();
        let size = ids.len();
        *encoded = Encoded { ids: leak(ids), offsets: leak(offsets), size };
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn onw_decode(
    tok: &Handle, ids: *const u32, size: usize, skip_special: bool, out: *mut Bytes,
) -> i32 {
    guarded(out, || {
        *out = Bytes::from(tok.decode(slice(ids, size), skip_special)?);
        Ok(())
    })
}

/// What the post-processor adds: `before` + the text's ids + `after`, as two lists in `encoded` (offsets[0] = size of `before`).
#[no_mangle]
pub unsafe extern "C" fn onw_affixes(tok: &Handle, encoded: *mut Encoded, out: *mut Bytes) -> i32 {
    guarded(out, || {
        let mut ids = tok.prefix.clone();
        let before = ids.len();
        ids.extend(&tok.suffix);
        let mut offsets = vec![0; ids.len() * 2];
        if let Some(first) = offsets.first_mut() {
            *first = before;
        }
        let size = ids.len();
        *encoded = Encoded { ids: leak(ids), offsets: leak(offsets), size };
        Ok(())
    })
}

/// The token as the vocabulary spells it; status 1 where there is none.
#[no_mangle]
pub unsafe extern "C" fn onw_piece(tok: &Handle, id: u32, out: *mut Bytes) -> i32 {
    guarded(out, || {
        *out = Bytes::from(tok.inner.id_to_token(id).ok_or("no such token")?);
        Ok(())
    })
}

/// The bytes that a token stands for within a text.
#[no_mangle]
pub unsafe extern "C" fn onw_token_bytes(tok: &Handle, id: u32, out: *mut Bytes) -> i32 {
    guarded(out, || {
        let piece = tok.inner.id_to_token(id).ok_or("no such token")?;
        let added = tok.inner.get_added_vocabulary().get_added_tokens_decoder().get(&id);
        *out = Bytes::from(match added {
            Some(token) => token.content.clone().into_bytes(),
            None if tok.byte_level => byte_level_bytes(&piece),
            None => match crate::stream::byte_of_token(&piece).filter(|_| tok.byte_fallback) {
                Some(byte) => vec![byte],
                None => piece.replace('\u{2581}', " ").into_bytes(),
            },
        });
        Ok(())
    })
}

/// The id of a token as the vocabulary spells it, or -1.
#[no_mangle]
pub unsafe extern "C" fn onw_id(tok: &Handle, data: *const u8, size: usize) -> i64 {
    let found = catch_unwind(AssertUnwindSafe(|| tok.inner.token_to_id(text(data, size).ok()?)));
    found.ok().flatten().map_or(-1, i64::from)
}

/// The largest id + 1.
#[no_mangle]
pub unsafe extern "C" fn onw_vocabulary_size(tok: &Handle) -> i64 {
    let size = catch_unwind(AssertUnwindSafe(|| {
        let count = tok.inner.get_vocab_size(true);
        let dense = (0..count).all(|id| tok.inner.id_to_token(id as u32).is_some());
        // Copying the whole vocabulary costs a tenth of loading it: only where ids are left out.
        if dense { count as i64 } else { tok.inner.get_vocab(true).into_values().max().map_or(0, |id| i64::from(id) + 1) }
    }));
    size.unwrap_or(0)
}

/// Added tokens as lines "id special content" in ascending ids, each ended by a zero byte.
#[no_mangle]
pub unsafe extern "C" fn onw_added_tokens(tok: &Handle, out: *mut Bytes) -> i32 {
    guarded(out, || {
        let added = tok.inner.get_added_vocabulary().get_added_tokens_decoder();
        let mut tokens: Vec<_> = added.iter().collect();
        tokens.sort_by_key(|token| *token.0);
        let line = |(id, token): &(&u32, &tokenizers::AddedToken)| {
            format!("{} {} {}\0", id, i32::from(token.special), token.content)
        };
        *out = Bytes::from(tokens.iter().map(line).collect::<String>());
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn onw_stream_new(tok: &Handle, skip_special: bool) -> *mut Stream {
    Box::into_raw(Box::new(Stream::new(tok.clone(), skip_special)))
}

#[no_mangle]
pub unsafe extern "C" fn onw_stream_push(stream: &mut Stream, id: u32, out: *mut Bytes) -> i32 {
    guarded(out, || {
        *out = Bytes::from(stream.push(id)?);
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn onw_stream_finish(stream: &mut Stream, out: *mut Bytes) -> i32 {
    guarded(out, || {
        *out = Bytes::from(stream.flush()?);
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn onw_stream_free(stream: *mut Stream) {
    if !stream.is_null() {
        let _ = catch_unwind(AssertUnwindSafe(|| drop(Box::from_raw(stream))));
    }
}

#[no_mangle]
pub unsafe extern "C" fn onw_template_new(
    source: *const u8, size: usize, template: *mut *mut ChatTemplate, out: *mut Bytes,
) -> i32 {
    guarded(out, || {
        *template = Box::into_raw(Box::new(ChatTemplate::new(text(source, size)?)?));
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn onw_template_free(template: *mut ChatTemplate) {
    if !template.is_null() {
        let _ = catch_unwind(AssertUnwindSafe(|| drop(Box::from_raw(template))));
    }
}

/// Writes the time `now` (ISO 8601; empty: this moment) in a format of strftime into a buffer, and returns its length;
/// negative where `now` is no time.
type ClockFunction = extern "C" fn(*const u8, usize, *const u8, usize, *mut u8, usize) -> isize;

fn clock_of(clock: ClockFunction) -> Clock {
    Arc::new(move |now, format| {
        let mut buffer = vec![0u8; 1024];
        let size = clock(now.as_ptr(), now.len(), format.as_ptr(), format.len(), buffer.as_mut_ptr(), buffer.len());
        buffer.truncate(usize::try_from(size).ok()?);
        String::from_utf8(buffer).ok()
    })
}

/// The prompt of a request. `special_tokens`, a JSON object, stands for the request's own where it is not empty.
/// With a tokenizer the strings are tracked: `ranges` (offsets, no ids) are the parts of the prompt that must stay text.
#[no_mangle]
pub unsafe extern "C" fn onw_render(
    template: &ChatTemplate, tok: Option<&Handle>, json: *const u8, size: usize, special_tokens: *const u8,
    special_tokens_size: usize, clock: ClockFunction, ranges: *mut Encoded, out: *mut Bytes,
) -> i32 {
    guarded(out, || {
        let mut fields = crate::request::parse(text(json, size)?)?;
        if special_tokens_size > 0 {
            let tokens = serde_json::from_str(text(special_tokens, special_tokens_size)?)?;
            fields.insert("special_tokens".into(), tokens);
        }
        let Some(tok) = tok else {
            *out = Bytes::from(template.render(fields, &str::to_owned, clock_of(clock))?);
            return Ok(());
        };
        let tracker = Tracker::new(tok.needles()?, &fields)?;
        let rendered = template.render(fields, &|text| tracker.mark(text), clock_of(clock))?;
        let (prompt, protected) = tracker.restore(&rendered);
        let offsets: Vec<usize> = protected.iter().flat_map(|range| [range.0, range.1]).collect();
        let size = protected.len();
        *ranges = Encoded { ids: leak(vec![0; size]), offsets: leak(offsets), size };
        *out = Bytes::from(prompt);
        Ok(())
    })
}
