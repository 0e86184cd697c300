//! A template's source, where minijinja wants it said differently.

/// The source with `{% generation %}` (which marks the assistant's part for training) as a scope of its own, and with each
/// loop's sequence checked: Python refuses to loop over None, minijinja takes it for an empty list. What `set`, `with`, a
/// macro and a call give to a variable goes through bounds::bounded, and a loop knows the size of its body.
pub fn adapted(source: &str) -> String {
    let mut out = String::new();
    let mut loops: Vec<usize> = Vec::new(); // where their tags end
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
            let bound = bounded_names(inner);
            let (body, last) = body.split_at(body.len() - usize::from(!bound.is_empty() && body.ends_with(['-', '+'])));
            out.push_str(&format!("{{%{}", body.replacen(inner, &adapted_tag(inner), 1)));
            bound.iter().for_each(|name| out.push_str(&format!("%}}{{% set {name}=({name})|bounded ")));
            out.push_str(&format!("{last}%}}"));
            match word(inner) {
                "for" => loops.push(out.len()),
                "endfor" => loops.pop().map_or((), |begin| fill_size(&mut out, begin)),
                _ => {}
            }
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

fn word(tag: &str) -> &str {
    tag.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default()
}

/// The size of a loop's body, put into its tag where it ends.
const SIZE: &str = "looped(0      )";

fn fill_size(out: &mut String, begin: usize) {
    let bytes = out.len() - begin;
    if let Some(at) = out[..begin].rfind(SIZE).filter(|_| bytes < 10_000_000) {
        out.replace_range(at..at + SIZE.len(), &format!("looped({bytes:<7})"));
    }
}

/// Variables that a tag gives values to, `set` excepted.
fn bounded_names(tag: &str) -> Vec<String> {
    let kind = word(tag);
    let inside = match kind {
        "macro" | "call" => tag.find('(').map(|at| &tag[at + 1..]),
        "with" => tag.strip_prefix("with"),
        _ => None,
    };
    let Some(inside) = inside.filter(|_| kind != "call" || tag["call".len()..].trim_start().starts_with('(')) else { return vec![] };
    let end = closing(inside).unwrap_or(inside.len());
    let inside = &inside[..end];
    let first_of_item = |(at, word): &(usize, &str)| {
        let before = inside[..*at].trim_end();
        let after = inside[at + word.len()..].trim_start();
        let begins = before.is_empty() || before.ends_with(',');
        begins && (after.is_empty() || after.starts_with(',') || after.starts_with('=')) && !word.starts_with(char::is_numeric)
    };
    top_level_words(inside).iter().filter(|found| first_of_item(found)).map(|(_, word)| (*word).to_owned()).collect()
}

/// Follows the strings of a text, character by character.
#[derive(Default)]
struct Strings {
    quote: Option<char>,
    escaped: bool,
}

impl Strings {
    /// Whether `c`, the next one, belongs to a string; its quotes do.
    fn holds(&mut self, c: char) -> bool {
        match self.quote {
            Some(_) if self.escaped => self.escaped = false,
            Some(_) if c == '\\' => self.escaped = true,
            Some(open) if c == open => self.quote = None,
            Some(_) => {}
            None if c == '\'' || c == '"' => self.quote = Some(c),
            None => return false,
        }
        true
    }
}

/// Where the bracket closes that was open before `text`.
fn closing(text: &str) -> Option<usize> {
    let (mut depth, mut strings) = (0, Strings::default());
    for (at, c) in text.char_indices() {
        if strings.holds(c) {
            continue;
        }
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' if depth == 0 => return Some(at),
            ')' | ']' | '}' => depth -= 1,
            _ => {}
        }
    }
    None
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
    Some(format!("{}{} ({})|{SIZE} {}", &tag[..head], &rest[..start], rest[start..end].trim(), &rest[end..]))
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
    let (mut depth, mut begin, mut strings) = (0i32, None, Strings::default());
    for (at, c) in text.char_indices().chain(std::iter::once((text.len(), ' '))) {
        let in_string = strings.holds(c);
        let in_word = !in_string && (c.is_alphanumeric() || c == '_');
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
        match c {
            _ if in_string => {}
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            _ => {}
        }
    }
    words
}
