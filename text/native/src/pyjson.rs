//! json.dumps of Python: `", "` and `": "`, keys in their order, no HTML escapes.
use crate::bounds;
use crate::pyvalue::{float_repr, is_float, pairs, str_of, BigInt};
use minijinja::value::{from_args, Kwargs, Rest, ValueKind};
use minijinja::{Error, ErrorKind, Value};
use std::fmt::Write;

const MAX_DEPTH: usize = 200;

struct Style {
    ensure_ascii: bool,
    indent: Option<String>,
    item_separator: String,
    key_separator: String,
    sort_keys: bool,
}

/// The filter `tojson(ensure_ascii=False, indent=None, separators=None, sort_keys=False)` of transformers.
pub fn tojson(value: &Value, args: Rest<Value>) -> Result<Value, Error> {
    let (positional, kwargs): (&[Value], Kwargs) = from_args(&args)?;
    if positional.len() > 4 {
        return Err(Error::from(ErrorKind::TooManyArguments));
    }
    let argument = |at: usize, name: &str| -> Result<Option<Value>, Error> {
        let value = match positional.get(at) {
            Some(value) => Some(value.clone()),
            None => kwargs.get::<Option<Value>>(name)?,
        };
        Ok(value.filter(|value| !value.is_none() && !value.is_undefined()))
    };
    let indent = argument(1, "indent")?.map(|indent| indent_text(&indent)).transpose()?;
    let separators = argument(2, "separators")?;
    let separator = |at: usize, default: &str| match &separators {
        Some(pair) => pair.get_item_by_index(at).map(|text| str_of(&text)),
        None => Ok(default.to_owned()),
    };
    let style = Style {
        ensure_ascii: argument(0, "ensure_ascii")?.is_some_and(|v| v.is_true()),
        item_separator: separator(0, if indent.is_some() { "," } else { ", " })?,
        key_separator: separator(1, ": ")?,
        sort_keys: argument(3, "sort_keys")?.is_some_and(|v| v.is_true()),
        indent,
    };
    kwargs.assert_all_used()?;
    let mut out = String::new();
    style.write(value, 0, &mut out)?;
    bounds::charge_string(Some(out.len()))?;
    Ok(Value::from(out))
}

fn indent_text(indent: &Value) -> Result<String, Error> {
    if let Some(text) = indent.as_str().filter(|text| text.len() <= 1000) {
        return Ok(text.to_owned());
    }
    let width = if indent.kind() == ValueKind::Bool { Some(i64::from(indent.is_true())) } else { indent.as_i64() };
    match width {
        Some(width) if width <= 1000 => Ok(" ".repeat(width.max(0) as usize)),
        _ => Err(Error::new(ErrorKind::InvalidOperation, "tojson: indent must be a small integer or a string")),
    }
}

impl Style {
    fn write(&self, value: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
        if bounds::is_full(out) {
            return bounds::charge_string(None);
        }
        if depth > MAX_DEPTH {
            return Err(Error::new(ErrorKind::InvalidOperation, format!("tojson: nested deeper than {MAX_DEPTH}")));
        }
        if let Some(number) = value.downcast_object_ref::<BigInt>() {
            out.push_str(&number.0);
            return Ok(());
        }
        match (value.kind(), value.as_object()) {
            (ValueKind::None, _) => out.push_str("null"),
            (ValueKind::Bool, _) => out.push_str(if value.is_true() { "true" } else { "false" }),
            (ValueKind::Number, _) => out.push_str(&number_text(value)),
            (ValueKind::String, _) => self.write_string(value.as_str().unwrap_or_default(), out),
            (ValueKind::Seq | ValueKind::Iterable, Some(object)) => {
                let items = object.try_iter().into_iter().flatten().map(|item| (None, item)).collect();
                self.write_items(items, ('[', ']'), depth, out)?;
            }
            (ValueKind::Map, Some(object)) => {
                let mut entries = pairs(object);
                if self.sort_keys {
                    entries.sort_by(|a, b| a.0.cmp(&b.0));
                }
                let items = entries.into_iter().map(|(key, item)| (Some(key), item)).collect();
                self.write_items(items, ('{', '}'), depth, out)?;
            }
            (kind, _) => {
                return Err(Error::new(ErrorKind::InvalidOperation, format!("tojson: {kind} is not JSON serializable")));
            }
        }
        Ok(())
    }

    fn write_items(
        &self, items: Vec<(Option<Value>, Value)>, brackets: (char, char), depth: usize, out: &mut String,
    ) -> Result<(), Error> {
        out.push(brackets.0);
        let empty = items.is_empty();
        for (i, (key, item)) in items.into_iter().enumerate() {
            if i > 0 {
                out.push_str(&self.item_separator);
            }
            self.new_line(depth + 1, out);
            if let Some(key) = key {
                self.write_string(&key_text(&key)?, out);
                out.push_str(&self.key_separator);
            }
            self.write(&item, depth + 1, out)?;
        }
        if !empty {
            self.new_line(depth, out);
        }
        out.push(brackets.1);
        Ok(())
    }

    fn new_line(&self, depth: usize, out: &mut String) {
        if let Some(indent) = &self.indent {
            out.push('\n');
            out.push_str(&indent.repeat(depth));
        }
    }

    fn write_string(&self, text: &str, out: &mut String) {
        out.push('"');
        for c in text.chars() {
            match c {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\u{8}' => out.push_str("\\b"),
                '\u{c}' => out.push_str("\\f"),
                c if (c as u32) < 0x20 || (self.ensure_ascii && !(' '..='~').contains(&c)) => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        write!(out, "\\u{unit:04x}").unwrap();
                    }
                }
                c => out.push(c),
            }
        }
        out.push('"');
    }
}

fn number_text(value: &Value) -> String {
    if !is_float(value) {
        return value.to_string();
    }
    match f64::try_from(value.clone()) {
        Ok(x) if x.is_nan() => "NaN".into(),
        Ok(x) if x.is_infinite() => if x > 0.0 { "Infinity".into() } else { "-Infinity".into() },
        Ok(x) => float_repr(x),
        Err(_) => value.to_string(),
    }
}

fn key_text(key: &Value) -> Result<String, Error> {
    match key.kind() {
        ValueKind::String => Ok(key.as_str().unwrap_or_default().to_owned()),
        ValueKind::Bool => Ok(if key.is_true() { "true".into() } else { "false".into() }),
        ValueKind::None => Ok("null".into()),
        ValueKind::Number => Ok(number_text(key)),
        kind => Err(Error::new(ErrorKind::InvalidOperation, format!("tojson: keys must not be {kind}"))),
    }
}
