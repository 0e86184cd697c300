//! Values as Python prints them: chat templates are written against Python's str() and repr().
use crate::bounds;
use minijinja::value::{DynObject, Enumerator, Object, ObjectRepr, ValueKind};
use minijinja::Value;
use std::collections::HashMap;
use std::fmt::{self, Write};
use std::sync::Arc;

/// A list of the request.
#[derive(Debug)]
pub struct List(pub Vec<Value>);

#[derive(Debug)]
pub struct Tuple(pub Vec<Value>);

/// (key, value) as Python's tuple.
pub fn pair_value(pair: (Value, Value)) -> Value {
    Value::from_object(Tuple(vec![pair.0, pair.1]))
}

/// A dict of the request, in its own order.
#[derive(Debug)]
pub struct Dict {
    entries: Vec<(Value, Value)>,
    index: HashMap<String, usize>,
}

/// An integer beyond 128 bits: printed as it came, but no arithmetic.
#[derive(Debug)]
pub struct BigInt(pub String);

impl Dict {
    pub fn new(pairs: Vec<(String, Value)>) -> Dict {
        let mut dict = Dict { entries: vec![], index: HashMap::new() };
        for (key, value) in pairs {
            dict.index.insert(key.clone(), dict.entries.len());
            dict.entries.push((Value::from(key), value));
        }
        dict
    }
}

impl Object for List {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.0.get(key.as_usize()?).cloned()
    }
    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Seq(self.0.len())
    }
    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&str_of(&Value::from_dyn_object(self.clone())))
    }
}

impl Object for Tuple {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.0.get(key.as_usize()?).cloned()
    }
    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Seq(self.0.len())
    }
    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&str_of(&Value::from_dyn_object(self.clone())))
    }
}

impl Object for Dict {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.get_value_by_str(key.as_str()?)
    }
    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Value> {
        self.index.get(key).map(|&at| self.entries[at].1.clone())
    }
    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(self.entries.iter().map(|entry| entry.0.clone()).collect())
    }
    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        Some(self.entries.len())
    }
    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&str_of(&Value::from_dyn_object(self.clone())))
    }
}

impl Object for BigInt {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }
    fn is_true(self: &Arc<Self>) -> bool {
        true
    }
    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

pub fn is_float(value: &Value) -> bool {
    value.kind() == ValueKind::Number && !value.is_integer()
}

pub fn is_number(value: &Value) -> bool {
    value.kind() == ValueKind::Number || value.downcast_object_ref::<BigInt>().is_some()
}

/// str(value)
pub fn str_of(value: &Value) -> String {
    match value.kind() {
        ValueKind::Seq | ValueKind::Iterable | ValueKind::Map => repr_of(value),
        ValueKind::Number if is_float(value) => float_repr(f64::try_from(value.clone()).unwrap_or(f64::NAN)),
        _ => value.to_string(),
    }
}

/// repr(value)
pub fn repr_of(value: &Value) -> String {
    let mut out = String::new();
    write_repr(value, 0, &mut out);
    out
}

/// Nesting beyond what a request can have is a template's own, and may be without end.
const MAX_DEPTH: usize = 200;

fn write_repr(value: &Value, depth: usize, out: &mut String) {
    if bounds::is_full(out) {
        return;
    }
    if depth > MAX_DEPTH {
        out.push_str("...");
        return;
    }
    match (value.kind(), value.as_object()) {
        (ValueKind::String, _) => write_str_repr(value.as_str().unwrap_or_default(), out),
        (ValueKind::Seq | ValueKind::Iterable, Some(object)) => {
            let tuple = value.downcast_object_ref::<Tuple>();
            out.push(if tuple.is_some() { '(' } else { '[' });
            write_items(object.try_iter().into_iter().flatten().map(|item| (None, item)), depth, out);
            out.push_str(match tuple {
                Some(Tuple(items)) if items.len() == 1 => ",)",
                Some(_) => ")",
                None => "]",
            });
        }
        (ValueKind::Map, Some(object)) => {
            out.push('{');
            write_items(pairs(object).into_iter().map(|(key, item)| (Some(key), item)), depth, out);
            out.push('}');
        }
        _ => out.push_str(&str_of(value)),
    }
}

fn write_items(items: impl Iterator<Item = (Option<Value>, Value)>, depth: usize, out: &mut String) {
    for (i, (key, item)) in items.enumerate() {
        if bounds::is_full(out) {
            return;
        }
        if i > 0 {
            out.push_str(", ");
        }
        if let Some(key) = key {
            write_repr(&key, depth + 1, out);
            out.push_str(": ");
        }
        write_repr(&item, depth + 1, out);
    }
}

pub fn pairs(object: &DynObject) -> Vec<(Value, Value)> {
    object.try_iter_pairs().into_iter().flatten().collect()
}

fn write_str_repr(text: &str, out: &mut String) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => {
                out.push('\\');
                out.push(c);
            }
            c if is_printable(c) => out.push(c),
            c => match c as u32 {
                n @ 0..=0xFF => write!(out, "\\x{n:02x}").unwrap(),
                n @ 0x100..=0xFFFF => write!(out, "\\u{n:04x}").unwrap(),
                n => write!(out, "\\U{n:08x}").unwrap(),
            },
        }
    }
    out.push(quote);
}

/// Python's str.isprintable for one character. Rust escapes the same characters, combining ones only at the beginning of
/// a text, so one letter goes before it. Markers of tracked values (private planes) are kept.
fn is_printable(c: char) -> bool {
    if c.is_ascii() {
        return (' '..='~').contains(&c);
    }
    c as u32 >= 0xF0000 || !format!("x{c}").escape_debug().to_string().contains("\\u{")
}

/// repr(float): the shortest digits that read back, with an exponent below 1e-4 and from 1e16.
pub fn float_repr(x: f64) -> String {
    if x.is_nan() {
        return "nan".into();
    }
    if x.is_infinite() {
        return if x > 0.0 { "inf".into() } else { "-inf".into() };
    }
    let scientific = format!("{x:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        let plain = x.to_string();
        return if plain.contains('.') { plain } else { plain + ".0" };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}
