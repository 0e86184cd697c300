//! A template's source, where minijinja wants it said differently.

/// The source with `{% generation %}` (which marks the assistant's part for training) as a scope of its own, and with each
/// loop's sequence checked: Python refuses to loop over None, minijinja takes it for an empty list. What `set` sets goes
/// through bounds::bounded.
pub fn adapted(source: &str) -> String {
    let mut out = String::new();
    let mut rest = source;
    while let Some(begin) = rest.find("{%").map(|tag| rest.find("{#").map_or(tag, |comment| tag.min(comment))) {
        let close = if rest[begin..].starts_with("{#") { "#}" } else { "%}" };
        let Some(length) = rest[begin..].find(close) else { break };
        let (tag, after) = rest[begin..].split_at(length + 2);
        out.push_str(&rest[..begin]);
        if close == "#}" {
            out.push_str(tag);
        } else {
            let body = &tag[2..tag.len() - 2];
            let inner = body.trim_matches(['-', '+']).trim();
            out.push_str(&format!("{{%{}%}}", body.replacen(inner, &adapted_tag(inner), 1)));
            if is_raw(inner) {
                let end = raw_end(after);
                out.push_str(&after[..end]);
                rest = &after[end..];
                continue;
            }
        }
        rest = after;
    }
    out + rest
}

fn adapted_tag(tag: &str) -> String {
    match tag {
        "generation" => "with".into(),
        "endgeneration" => "endwith".into(),
        _ => checked_loop(tag).or_else(|| bounded_set(tag)).unwrap_or_else(|| tag.to_owned()),
    }
}

fn is_raw(tag: &str) -> bool {
    matches!(tag, "raw" | "verbatim")
}

/// Where the text of a raw block ends.
fn raw_end(text: &str) -> usize {
    let mut from = 0;
    while let Some(at) = text[from..].find("{%") {
        if text[from + at + 2..].trim_start_matches(['-', '+']).trim_start().starts_with("endraw") {
            return from + at;
        }
        from += at + 2;
    }
    text.len()
}

/// `for x in SEQUENCE if ...` with the sequence in a filter that fails as Python's iteration does.
fn checked_loop(tag: &str) -> Option<String> {
    let rest = tag.strip_prefix("for")?.strip_prefix(|c: char| c.is_whitespace())?;
    let head = tag.len() - rest.len();
    let words = top_level_words(rest);
    let start = words.iter().find(|(_, word)| *word == "in").map(|(at, word)| at + word.len())?;
    let end = words.iter().find(|(at, word)| *at > start && matches!(*word, "if" | "recursive"));
    let end = end.map_or(rest.len(), |(at, _)| *at);
    Some(format!("{}{} ({})|looped {}", &tag[..head], &rest[..start], rest[start..end].trim(), &rest[end..]))
}

/// `set x = VALUE`, or the block `set x | FILTERS`, with the value in a filter that bounds its size.
fn bounded_set(tag: &str) -> Option<String> {
    let rest = tag.strip_prefix("set")?.strip_prefix(|c: char| c.is_whitespace())?;
    match rest.split_once('=') {
        Some((_, value)) if value.trim().is_empty() => None,
        Some((target, value)) if !target.contains('|') => Some(format!("set {target}= ({})|bounded", value.trim())),
        _ => Some(format!("set {rest}|bounded")),
    }
}

/// The words outside of brackets and strings, with their places.
fn top_level_words(text: &str) -> Vec<(usize, &str)> {
    let mut words = Vec::new();
    let (mut depth, mut quote, mut begin) = (0i32, None, None);
    let mut escaped = false;
    for (at, c) in text.char_indices().chain(std::iter::once((text.len(), ' '))) {
        let in_word = quote.is_none() && (c.is_alphanumeric() || c == '_');
        match (begin, in_word) {
            (None, true) => begin = Some(at),
            (Some(from), false) => {
                if depth == 0 {
                    words.push((from, &text[from..at]));
                }
                begin = None;
            }
            _ => {}
        }
        match quote {
            Some(_) if escaped => escaped = false,
            Some(_) if c == '\\' => escaped = true,
            Some(open) if c == open => quote = None,
            Some(_) => {}
            None => match c {
                '\'' | '"' => quote = Some(c),
                '(' | '[' | '{' => depth += 1,
                ')' | ']' | '}' => depth -= 1,
                _ => {}
            },
        }
    }
    words
}
