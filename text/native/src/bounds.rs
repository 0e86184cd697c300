//! How large a chat template may be. minijinja parses, compiles and drops a chain (`not not x`, `a.b.c`, `elif`) with a frame
//! of the stack per link and bounds only nesting, so that a long chain in a downloaded template would overflow the stack.
use crate::pyvalue::{Dict, List};
use crate::result::Result;
use minijinja::machinery::{tokenize, Token, WhitespaceConfig};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, Value};
use std::cell::Cell;

/// The largest of 13 templates of eight publishers has 17 kB, 35 tokens in a tag and 17 `elif`. What is within these bounds
/// compiles on a stack of 1 MiB (x86-64, minijinja 2.24, 2026-11: twice the tokens did, in 14 shapes of chain).
const MAX_BYTES: usize = 256 << 10;
/// Tokens between `{{` and `}}` or `{%` and `%}`.
const MAX_TAG_TOKENS: usize = 1000;
const MAX_ELIFS: usize = 500;
/// `*` in a tag: of a string each makes up to 100 MB.
const MAX_TAG_PRODUCTS: usize = 8;
/// A string that a template makes: room for a request of the largest strings.
const MAX_SET_BYTES: usize = 64 << 20;

pub fn check_size(source: &str) -> Result<()> {
    match source.len() {
        0..=MAX_BYTES => Ok(()),
        bytes => Err(refusal(&format!("it has {bytes} bytes, more than {MAX_BYTES}"))),
    }
}

/// Every tag of `source` within the bounds; seen by minijinja's own lexer, so that nothing is hidden from the check in
/// strings, comments or raw blocks. What the lexer refuses, the parser refuses as well.
pub fn check_tags(source: &str) -> Result<()> {
    let (mut tag_tokens, mut elifs, mut products) = (0, 0, 0);
    for (token, span) in tokenize(source, false, SyntaxConfig::default(), WhitespaceConfig::default()).map_while(|t| t.ok()) {
        let line = span.start_line;
        match token {
            Token::VariableStart | Token::BlockStart | Token::TemplateData(_) => (tag_tokens, products) = (0, 0),
            Token::Ident("elif") if tag_tokens == 0 => elifs += 1,
            Token::Mul => (tag_tokens, products) = (tag_tokens + 1, products + 1),
            _ => tag_tokens += 1,
        }
        if tag_tokens > MAX_TAG_TOKENS {
            return Err(refusal(&format!("the tag at line {line} has more than {MAX_TAG_TOKENS} tokens")));
        }
        if products > MAX_TAG_PRODUCTS {
            return Err(refusal(&format!("the tag at line {line} multiplies more than {MAX_TAG_PRODUCTS} times")));
        }
        if elifs > MAX_ELIFS {
            return Err(refusal(&format!("line {line} has 'elif' number {elifs} of at most {MAX_ELIFS}")));
        }
    }
    Ok(())
}

fn refusal(what: &str) -> Box<dyn std::error::Error + Send + Sync> {
    format!("the template is damaged or hostile: {what}. Download it again, from a publisher you trust").into()
}

/// All text that one rendering makes, parts and output together: fuel counts steps and not bytes.
const MAX_MADE_BYTES: usize = 512 << 20;
const MAX_ITEMS: usize = 1_000_000;
/// Lists and namespaces that a template puts into one another: they are compared and dropped with a frame per level.
const MAX_DEPTH: usize = 100;
const MAX_WIDTH_DIGITS: usize = 5;

thread_local! {
    static MADE: Cell<usize> = const { Cell::new(0) };
}

/// A rendering begins in this thread.
pub fn begin() {
    MADE.set(0);
}

pub fn hostile(what: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("the template {what}: it is damaged or hostile"))
}

/// `bytes` of text are about to be made.
pub fn charge(bytes: usize) -> std::result::Result<(), Error> {
    let all = MADE.get().saturating_add(bytes);
    MADE.set(all);
    match all {
        0..=MAX_MADE_BYTES => Ok(()),
        _ => Err(hostile(&format!("makes more than {MAX_MADE_BYTES} bytes of text"))),
    }
}

/// One string of so many bytes is about to be made.
pub fn charge_string(bytes: Option<usize>) -> std::result::Result<(), Error> {
    match bytes {
        Some(bytes) if bytes <= MAX_SET_BYTES => charge(bytes),
        _ => Err(hostile(&format!("makes a string of more than {MAX_SET_BYTES} bytes"))),
    }
}

pub fn check_prompt(bytes: usize) -> std::result::Result<(), Error> {
    match bytes {
        0..=MAX_SET_BYTES => Ok(()),
        _ => Err(hostile(&format!("renders a prompt of more than {MAX_SET_BYTES} bytes"))),
    }
}

/// The text of `replace`, before it is made.
pub fn charge_replace(text: &str, old: &str, new: &str) -> std::result::Result<(), Error> {
    let places = if old.is_empty() { text.len() + 1 } else { text.len() / old.len() };
    let most = places.checked_mul(new.len()).and_then(|more| more.checked_add(text.len()));
    match most {
        Some(most) if most <= MAX_SET_BYTES => charge(most),
        _ => charge_string(text.matches(old).count().checked_mul(new.len()).and_then(|more| more.checked_add(text.len()))),
    }
}

/// A format with a width such as `%999999999d`.
pub fn check_format(format: &str) -> std::result::Result<(), Error> {
    let longest = format.split(|c: char| !c.is_ascii_digit()).map(str::len).max().unwrap_or(0);
    if longest > MAX_WIDTH_DIGITS || format.len() > MAX_BYTES {
        return Err(hostile("pads to a width of more than 99999 characters"));
    }
    charge(format.len())
}

/// What a string may grow to while it is written: the writer stops there, and whoever takes the string refuses it.
pub fn is_full(out: &str) -> bool {
    out.len() > MAX_SET_BYTES
}

/// What a loop of `body_bytes` of source goes over: its plain text alone could fill the memory.
pub fn charge_loop(items: usize, body_bytes: usize) -> std::result::Result<(), Error> {
    charge(items.saturating_mul(body_bytes))
}

/// The items, of which there may be so many.
pub fn collected(value: &Value) -> std::result::Result<Vec<Value>, Error> {
    let items: Vec<Value> = value.try_iter()?.take(MAX_ITEMS + 1).collect();
    if items.len() > MAX_ITEMS {
        return Err(hostile(&format!("makes a list of more than {MAX_ITEMS} items")));
    }
    charge(items.len() * std::mem::size_of::<Value>())?;
    Ok(items)
}

/// A count that a filter makes lists for.
pub fn check_count(count: usize) -> std::result::Result<(), Error> {
    match count {
        0..=10_000 => Ok(()),
        _ => Err(hostile("asks for more than 10000 parts")),
    }
}

/// Where an integer is multiplied (`'a' * 99999999` is computed by the compiler, as often as it is written), one factor
/// that is only known later.
pub fn late_products(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut copied = 0;
    for (token, span) in tokenize(source, false, SyntaxConfig::default(), WhitespaceConfig::default()).map_while(|t| t.ok()) {
        if let Token::Mul = token {
            let end = span.end_offset as usize;
            out.push_str(&source[copied..end]);
            out.push_str("(1|int)*");
            copied = end;
        }
    }
    out + &source[copied..]
}

/// A filter: what `set`, `with`, a macro or a call gives to a variable.
pub fn bounded(value: &Value) -> std::result::Result<Value, Error> {
    check_value(value, 0)?;
    Ok(value.clone())
}

fn check_value(value: &Value, depth: usize) -> std::result::Result<(), Error> {
    if let Some(text) = value.as_str() {
        if text.len() > MAX_SET_BYTES {
            return Err(hostile(&format!("sets a string of more than {MAX_SET_BYTES} bytes")));
        }
        return charge(text.len());
    }
    let of_request = value.downcast_object_ref::<List>().is_some() || value.downcast_object_ref::<Dict>().is_some();
    let Some(object) = value.as_object().filter(|_| !of_request) else { return Ok(()) };
    if depth > MAX_DEPTH {
        return Err(hostile(&format!("nests values deeper than {MAX_DEPTH} levels")));
    }
    if !matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable | ValueKind::Map) {
        return Ok(());
    }
    if value.len().is_some_and(|items| items > MAX_ITEMS) {
        return Err(hostile(&format!("makes a list of more than {MAX_ITEMS} items")));
    }
    if value.len().is_none() {
        return Ok(()); // can be gone through once alone
    }
    for item in object.try_iter_pairs().into_iter().flatten() {
        charge(std::mem::size_of::<Value>())?;
        check_value(&item.1, depth + 1)?;
    }
    Ok(())
}
