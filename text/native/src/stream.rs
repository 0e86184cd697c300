//! Decoding id by id: never half a character, and all pieces together equal the one-shot decode.
use crate::result::Result;
use crate::tokenizer::{join, Tok};
use std::sync::{Arc, LazyLock};

/// A decoder may look at what came before (it strips the first space of a text), so the last tokens are kept.
const MAX_CONTEXT_TOKENS: usize = 64;

pub struct Stream {
    tok: Arc<Tok>,
    skip_special: bool,
    context: Vec<String>, // shown already; the decoder sees them again
    pending: Vec<String>, // may end within a character
    pending_bytes: Vec<u8>, // of `pending`, for byte-level decoders
}

impl Stream {
    pub fn new(tok: Arc<Tok>, skip_special: bool) -> Stream {
        Stream { tok, skip_special, context: vec![], pending: vec![], pending_bytes: vec![] }
    }

    pub fn push(&mut self, id: u32) -> Result<String> {
        if self.skip_special && self.tok.is_special(id) {
            return Ok(String::new());
        }
        // An id without a token (the padding rows of an output matrix) decodes to nothing.
        let Some(token) = self.tok.inner.id_to_token(id) else { return Ok(String::new()) };
        let open = if self.tok.byte_level {
            self.pending_bytes.extend(byte_level_bytes(&token));
            ends_within_a_character(&self.pending_bytes)
        } else {
            // A run of bytes is text only if the whole run is valid, so it is shown when it ends.
            self.tok.byte_fallback && byte_of_token(&token).is_some()
        };
        self.pending.push(token);
        if open {
            return Ok(String::new());
        }
        self.flush()
    }

    /// Shows what is held; an unfinished character becomes U+FFFD as in the one-shot decode.
    pub fn flush(&mut self) -> Result<String> {
        if self.pending.is_empty() {
            return Ok(String::new());
        }
        let before = join_or_empty(&self.tok, self.context.clone())?;
        let mut tokens = self.context.clone();
        tokens.extend(self.pending.iter().cloned());
        let after = join(&self.tok, tokens)?;
        let shown = match after.strip_prefix(&before) {
            Some(rest) => rest.to_owned(),
            None => join(&self.tok, self.pending.clone())?,
        };
        self.pending_bytes.clear();
        let pending = std::mem::take(&mut self.pending);
        if self.tok.byte_level {
            return Ok(shown); // bytes need no context
        }
        // White space alone could be stripped as the beginning of a text: keep what came before it.
        let stands_alone = shown.chars().any(|c| !c.is_whitespace());
        if stands_alone || self.context.len() + pending.len() > MAX_CONTEXT_TOKENS {
            self.context = pending;
        } else {
            self.context.extend(pending);
        }
        Ok(shown)
    }
}

fn join_or_empty(tok: &Tok, tokens: Vec<String>) -> Result<String> {
    if tokens.is_empty() {
        return Ok(String::new());
    }
    join(tok, tokens)
}

/// The byte of a token such as <0x0A>.
pub fn byte_of_token(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>').filter(|digits| digits.len() == 2)?;
    u8::from_str_radix(digits, 16).ok()
}

/// GPT-2's bytes as characters: printable ones stand for themselves, the other 68 follow from U+0100.
static BYTE_OF: LazyLock<std::collections::HashMap<char, u8>> = LazyLock::new(|| {
    let plain = |b: u32| (0x21..=0x7E).contains(&b) || (0xA1..=0xAC).contains(&b) || (0xAE..=0xFF).contains(&b);
    let mut next = 0x100;
    let pairs = (0..=255u32).map(|b| {
        let c = if plain(b) {
            b
        } else {
            next += 1;
            next - 1
        };
        (char::from_u32(c).unwrap(), b as u8)
    });
    pairs.collect()
});

/// The bytes of a byte-level token; a token with any other character stands for its own UTF-8.
pub fn byte_level_bytes(token: &str) -> Vec<u8> {
    let bytes: Option<Vec<u8>> = token.chars().map(|c| BYTE_OF.get(&c).copied()).collect();
    bytes.unwrap_or_else(|| token.as_bytes().to_vec())
}

fn ends_within_a_character(mut bytes: &[u8]) -> bool {
    loop {
        match std::str::from_utf8(bytes) {
            Ok(_) => return false,
            Err(e) => match e.error_len() {
                None => return true,
                Some(n) => bytes = &bytes[e.valid_up_to() + n..],
            },
        }
    }
}
