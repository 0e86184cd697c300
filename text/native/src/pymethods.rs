//! Methods of Python's str, dict and list, where they differ from or are missing in minijinja-contrib's pycompat.
use crate::bounds;
use crate::pyvalue::{pair_value, pairs, str_of, Tuple};
use minijinja::value::{from_args, Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};

/// Python's white space: Unicode's, and the four ASCII separators.
pub fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\x1c'..='\x1f').contains(&c)
}

pub fn call(state: &State, value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    if let Some(text) = value.as_str() {
        match (method, args) {
            ("replace", [old, new, ..]) => bounds::charge_replace(text, &str_of(old), &str_of(new))?,
            ("format", _) => bounds::check_format(text)?,
            _ => {}
        }
    }
    let own = match value.kind() {
        ValueKind::String => string_method(value.as_str().unwrap_or_default(), method, args)?,
        ValueKind::Map => map_method(value, method, args)?,
        ValueKind::Seq | ValueKind::Iterable => list_method(value, method, args)?,
        _ => None,
    };
    let result = match own {
        Some(value) => value,
        None => minijinja_contrib::pycompat::unknown_method_callback(state, value, method, args)?,
    };
    bounds::charge(result.as_str().map_or(0, str::len))?;
    Ok(result)
}

fn fail(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message.into())
}

fn string_method(s: &str, method: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    let value = match method {
        "strip" | "lstrip" | "rstrip" => {
            let (chars,): (Option<&str>,) = from_args(args)?;
            Value::from(strip(s, chars, method != "rstrip", method != "lstrip"))
        }
        "split" | "rsplit" => {
            let (positional, kwargs): (&[Value], Kwargs) = from_args(args)?;
            let separator = argument(positional, &kwargs, 0, "sep")?;
            let limit = argument(positional, &kwargs, 1, "maxsplit")?.and_then(|n| n.as_i64()).unwrap_or(-1);
            kwargs.assert_all_used()?;
            let limit = if limit < 0 { usize::MAX } else { limit as usize };
            let separator = separator.map(|sep| str_of(&sep));
            strings(split(s, separator.as_deref(), limit, method == "rsplit")?)
        }
        "splitlines" => {
            let (positional, kwargs): (&[Value], Kwargs) = from_args(args)?;
            let keep = argument(positional, &kwargs, 0, "keepends")?.is_some_and(|keep| keep.is_true());
            strings(lines(s, keep))
        }
        "partition" | "rpartition" => {
            let (sep,): (&str,) = from_args(args)?;
            let found = if method == "partition" { s.split_once(sep) } else { s.rsplit_once(sep) };
            tuple(match found {
                Some((before, after)) => vec![before, sep, after],
                None if method == "partition" => vec![s, "", ""],
                None => vec!["", "", s],
            })
        }
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            Value::from(s.strip_prefix(prefix).unwrap_or(s))
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            Value::from(s.strip_suffix(suffix).unwrap_or(s))
        }
        "zfill" => {
            let (width,): (usize,) = from_args(args)?;
            let (sign, digits) = s.split_at(usize::from(s.starts_with(['+', '-'])));
            Value::from(format!("{sign}{}{digits}", pad(s, width, '0')?))
        }
        "ljust" | "rjust" | "center" => {
            let (width, fill): (usize, Option<&str>) = from_args(args)?;
            let filling = pad(s, width, fill.and_then(|fill| fill.chars().next()).unwrap_or(' '))?;
            let all = filling.chars().count();
            let left = match method {
                "ljust" => 0,
                "rjust" => all,
                _ => all / 2 + (all & width & 1),
            };
            let (before, after): (String, String) =
                (filling.chars().take(left).collect(), filling.chars().skip(left).collect());
            Value::from(format!("{before}{s}{after}"))
        }
        "find" | "rfind" | "index" | "rindex" => {
            let (needle,): (&str,) = from_args(args)?;
            let at = if method.starts_with('r') { s.rfind(needle) } else { s.find(needle) };
            match at {
                Some(at) => Value::from(s[..at].chars().count()),
                None if method.ends_with("find") => Value::from(-1),
                None => return Err(fail("substring not found")),
            }
        }
        "count" => {
            let (needle,): (&str,) = from_args(args)?;
            Value::from(s.matches(needle).count())
        }
        "isspace" => Value::from(!s.is_empty() && s.chars().all(is_space)),
        "isdigit" | "isnumeric" | "isdecimal" => Value::from(!s.is_empty() && s.chars().all(char::is_numeric)),
        "isalpha" => Value::from(!s.is_empty() && s.chars().all(char::is_alphabetic)),
        "isalnum" => Value::from(!s.is_empty() && s.chars().all(char::is_alphanumeric)),
        "isupper" => Value::from(s.chars().any(char::is_uppercase) && !s.chars().any(char::is_lowercase)),
        "islower" => Value::from(s.chars().any(char::is_lowercase) && !s.chars().any(char::is_uppercase)),
        "casefold" => Value::from(s.to_lowercase()),
        "swapcase" => Value::from(s.chars().map(swap_case).collect::<String>()),
        "join" => {
            let (items,): (&Value,) = from_args(args)?;
            let mut parts: Vec<String> = Vec::new();
            for item in items.try_iter()? {
                let part = item.as_str().ok_or_else(|| fail("join: every item must be a string"))?;
                bounds::charge(part.len() + s.len() + std::mem::size_of::<String>())?;
                parts.push(part.to_owned());
            }
            Value::from(parts.join(s))
        }
        _ => return Ok(None),
    };
    Ok(Some(value))
}

fn map_method(value: &Value, method: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    let Some(object) = value.as_object() else { return Ok(None) };
    let entries = || pairs(object);
    Ok(match method {
        "items" | "keys" | "values" => {
            let () = from_args(args)?;
            let items = entries().into_iter().map(|(key, item)| match method {
                "items" => pair_value((key, item)),
                "keys" => key,
                _ => item,
            });
            Some(Value::from(items.collect::<Vec<_>>()))
        }
        "copy" => {
            let () = from_args(args)?;
            Some(value.clone())
        }
        _ => None,
    })
}

fn list_method(value: &Value, method: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    match method {
        "index" => {
            let (needle,): (&Value,) = from_args(args)?;
            match value.try_iter()?.position(|item| item == *needle) {
                Some(at) => Ok(Some(Value::from(at))),
                None => Err(fail("index: not in list")),
            }
        }
        "count" => {
            let (needle,): (&Value,) = from_args(args)?;
            Ok(Some(Value::from(value.try_iter()?.filter(|item| item == needle).count())))
        }
        "append" | "extend" | "insert" | "pop" | "remove" | "clear" | "sort" | "reverse" => {
            Err(fail(format!("{method}: a template must not change a list")))
        }
        _ => Ok(None),
    }
}

fn argument(positional: &[Value], kwargs: &Kwargs, at: usize, name: &str) -> Result<Option<Value>, Error> {
    let value = match positional.get(at) {
        Some(value) => Some(value.clone()),
        None => kwargs.get::<Option<Value>>(name)?,
    };
    Ok(value.filter(|value| !value.is_none()))
}

fn tuple(parts: Vec<&str>) -> Value {
    Value::from_object(Tuple(parts.into_iter().map(Value::from).collect()))
}

fn strings<S: AsRef<str>>(parts: Vec<S>) -> Value {
    Value::from(parts.iter().map(|part| Value::from(part.as_ref())).collect::<Vec<_>>())
}

pub fn strip<'a>(s: &'a str, chars: Option<&str>, left: bool, right: bool) -> &'a str {
    let drop = |c: char| chars.map_or_else(|| is_space(c), |chars| chars.contains(c));
    let s = if left { s.trim_start_matches(drop) } else { s };
    if right {
        s.trim_end_matches(drop)
    } else {
        s
    }
}

pub fn split<'a>(s: &'a str, separator: Option<&str>, limit: usize, from_right: bool) -> Result<Vec<&'a str>, Error> {
    let mut parts: Vec<&str> = match separator {
        Some("") => return Err(fail("split: empty separator")),
        Some(sep) if from_right => s.rsplitn(limit.saturating_add(1), sep).collect(),
        Some(sep) => return Ok(s.splitn(limit.saturating_add(1), sep).collect()),
        None => return Ok(split_spaces(s, limit, from_right)),
    };
    parts.reverse();
    Ok(parts)
}

fn split_spaces(s: &str, limit: usize, from_right: bool) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = strip(s, None, !from_right, from_right);
    while !rest.is_empty() {
        let gap = if from_right { rest.rfind(is_space) } else { rest.find(is_space) };
        let Some(gap) = gap.filter(|_| parts.len() < limit) else {
            parts.push(rest); // with its outer spaces, as in Python
            break;
        };
        let (before, after) = rest.split_at(gap);
        if from_right {
            parts.push(after.trim_start_matches(is_space));
            rest = before.trim_end_matches(is_space);
        } else {
            parts.push(before);
            rest = after.trim_start_matches(is_space);
        }
    }
    if from_right {
        parts.reverse();
    }
    parts
}

fn lines(s: &str, keep_ends: bool) -> Vec<&str> {
    let is_end = |c: char| matches!(c, '\n'..='\r' | '\x1c'..='\x1e' | '\u{85}' | '\u{2028}' | '\u{2029}');
    let mut parts = Vec::new();
    let mut rest = s;
    while !rest.is_empty() {
        let (end, next) = match rest.char_indices().find(|(_, c)| is_end(*c)) {
            Some((at, '\r')) if rest[at..].starts_with("\r\n") => (at, at + 2),
            Some((at, c)) => (at, at + c.len_utf8()),
            None => (rest.len(), rest.len()),
        };
        parts.push(&rest[..if keep_ends { next } else { end }]);
        rest = &rest[next..];
    }
    parts
}

fn pad(s: &str, width: usize, fill: char) -> Result<String, Error> {
    if width > 10_000 {
        return Err(fail("a width of more than 10000 characters"));
    }
    Ok(fill.to_string().repeat(width.saturating_sub(s.chars().count())))
}

fn swap_case(c: char) -> String {
    if c.is_uppercase() {
        c.to_lowercase().collect()
    } else {
        c.to_uppercase().collect()
    }
}
