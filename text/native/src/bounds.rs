//! How large a chat template may be. minijinja parses, compiles and drops a chain (`not not x`, `a.b.c`, `elif`) with a frame
//! of the stack per link and bounds only nesting, so that a long chain in a downloaded template would overflow the stack.
use crate::result::Result;
use minijinja::machinery::{tokenize, Token, WhitespaceConfig};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, Value};

/// The largest of 13 templates of eight publishers has 17 kB, 35 tokens in a tag and 17 `elif`. What is within these bounds
/// compiles on a stack of 1 MiB (x86-64, minijinja 2.24, 2026-11: twice the tokens did, in 14 shapes of chain).
const MAX_BYTES: usize = 256 << 10;
/// Tokens between `{{` and `}}` or `{%` and `%}`.
const MAX_TAG_TOKENS: usize = 1000;
const MAX_ELIFS: usize = 500;
/// A string that a template sets: room for a request of the largest strings.
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
    let (mut tag_tokens, mut elifs) = (0, 0);
    for (token, span) in tokenize(source, false, SyntaxConfig::default(), WhitespaceConfig::default()).map_while(|t| t.ok()) {
        let line = span.start_line;
        match token {
            Token::VariableStart | Token::BlockStart | Token::TemplateData(_) => tag_tokens = 0,
            Token::Ident("elif") if tag_tokens == 0 => elifs += 1,
            _ => tag_tokens += 1,
        }
        if tag_tokens > MAX_TAG_TOKENS {
            return Err(refusal(&format!("the tag at line {line} has more than {MAX_TAG_TOKENS} tokens")));
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

/// A filter: what `set` gives to a variable. A string doubled in a loop ends here; fuel counts steps and not bytes.
pub fn bounded(value: &Value) -> std::result::Result<Value, Error> {
    let too_long = |value: &Value| value.as_str().is_some_and(|text| text.len() > MAX_SET_BYTES);
    let items = value.kind() == ValueKind::Seq && value.len().is_some_and(|items| items <= 16);
    if too_long(value) || (items && value.try_iter()?.any(|item| too_long(&item))) {
        let message = format!("the template sets a string of more than {MAX_SET_BYTES} bytes: it is damaged or hostile");
        return Err(Error::new(ErrorKind::InvalidOperation, message));
    }
    Ok(value.clone())
}
