//! Filters and tests of Jinja2 where minijinja's own differ.
use crate::bounds;
use crate::pymethods::{is_space, strip};
use crate::pyvalue::{is_float, is_number, pair_value, pairs, str_of};
use minijinja::value::{from_args, Kwargs, Rest, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State, Value};

pub fn add_to(env: &mut Environment<'static>) {
    env.add_filter("tojson", crate::pyjson::tojson);
    env.add_filter("string", |value: &Value| text_or_self(value));
    env.add_filter("trim", trim);
    env.add_filter("upper", |value: &Value| str_of(value).to_uppercase());
    env.add_filter("lower", |value: &Value| str_of(value).to_lowercase());
    env.add_filter("capitalize", |value: &Value| capitalize(&str_of(value)));
    env.add_filter("title", |value: &Value| title(&str_of(value)));
    env.add_filter("replace", replace);
    env.add_filter("join", join);
    env.add_filter("length", length);
    env.add_filter("count", length);
    env.add_filter("items", items);
    env.add_filter("list", list);
    env.add_filter("indent", indent);
    env.add_filter("dictsort", dictsort);
    env.add_filter("round", round);
    env.add_filter("looped", looped);
    env.add_filter("batch", batch);
    env.add_filter("slice", slice);
    env.add_filter("format", format);
    env.add_filter("bounded", crate::bounds::bounded);
    env.add_filter("float", float);
    env.add_filter("int", int);
    env.add_filter("safe", |value: &Value| text_or_self(value));
    env.add_filter("escape", escape);
    env.add_filter("e", escape);
    env.add_filter("wordcount", |value: &Value| str_of(value).split(|c: char| !is_word(c)).filter(|w| !w.is_empty()).count());

    env.add_test("sequence", |value: &Value| {
        matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable | ValueKind::Map | ValueKind::String | ValueKind::Undefined)
    });
    env.add_test("iterable", |value: &Value| !value.is_none() && value.try_iter().is_ok());
    env.add_test("number", |value: &Value| is_number(value) || value.kind() == ValueKind::Bool);
    env.add_test("integer", |value: &Value| is_number(value) && !is_float(value));
    env.add_test("float", is_float);
    env.add_test("callable", |value: &Value| value.kind() == ValueKind::Plain && !is_number(value));
    env.add_test("lower", |value: &Value| {
        let text = str_of(value);
        text.chars().any(char::is_lowercase) && !text.chars().any(char::is_uppercase)
    });
    env.add_test("upper", |value: &Value| {
        let text = str_of(value);
        text.chars().any(char::is_uppercase) && !text.chars().any(char::is_lowercase)
    });
}

fn fail(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message.into())
}

fn text_or_self(value: &Value) -> Value {
    if value.kind() == ValueKind::String {
        return value.clone();
    }
    Value::from(str_of(value))
}

fn trim(value: &Value, chars: Option<&str>) -> Value {
    Value::from(strip(&str_of(value), chars, true, true))
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn capitalize(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|c| c.to_uppercase().collect::<String>()).unwrap_or_default();
    first + &chars.as_str().to_lowercase()
}

/// Jinja2's title: a word begins after white space, a hyphen or an opening bracket.
fn title(text: &str) -> String {
    let mut out = String::new();
    let mut begins = true;
    for c in text.chars() {
        if begins {
            out.extend(c.to_uppercase());
        } else {
            out.extend(c.to_lowercase());
        }
        begins = is_space(c) || matches!(c, '-' | '(' | '{' | '[' | '<');
    }
    out
}

fn replace(value: &Value, old: &Value, new: &Value, count: Option<i64>) -> Result<String, Error> {
    let (text, old, new) = (str_of(value), str_of(old), str_of(new));
    bounds::charge_replace(&text, &old, &new)?;
    Ok(match count {
        Some(count) if count >= 0 => text.replacen(&old, &new, count as usize),
        _ => text.replace(&old, &new),
    })
}

fn join(value: &Value, args: Rest<Value>) -> Result<String, Error> {
    let (positional, kwargs): (&[Value], Kwargs) = from_args(&args)?;
    let separator = match positional.first() {
        Some(separator) => Some(separator.clone()),
        None => kwargs.get::<Option<Value>>("d")?,
    };
    let attribute = match positional.get(1) {
        Some(attribute) => Some(attribute.clone()),
        None => kwargs.get::<Option<Value>>("attribute")?,
    };
    kwargs.assert_all_used()?;
    let separator = separator.map(|s| str_of(&s)).unwrap_or_default();
    let mut parts = Vec::new();
    let mut bytes = 0usize;
    for item in value.try_iter()? {
        let part = match &attribute {
            Some(name) => str_of(&item.get_item(name)?),
            None => str_of(&item),
        };
        let more = part.len() + separator.len();
        bytes = bytes.saturating_add(more);
        bounds::charge(more + std::mem::size_of::<String>())?;
        parts.push(part);
    }
    bounds::charge_string(Some(bytes))?;
    Ok(parts.join(&separator))
}

fn length(value: &Value) -> Result<usize, Error> {
    match value.kind() {
        ValueKind::Undefined => Ok(0),
        kind => value.len().ok_or_else(|| fail(format!("a value of type {kind} has no length"))),
    }
}

fn items(value: &Value) -> Result<Value, Error> {
    match (value.kind(), value.as_object()) {
        (ValueKind::Undefined, _) => Ok(Value::from(Vec::<Value>::new())),
        (ValueKind::Map, Some(object)) => {
            Ok(Value::from(pairs(object).into_iter().map(pair_value).collect::<Vec<_>>()))
        }
        _ => Err(fail("Can only get item pairs from a mapping.")),
    }
}

fn dictsort(value: &Value, args: Rest<Value>) -> Result<Value, Error> {
    let sorted = minijinja::filters::dictsort(value, from_args::<(Kwargs,)>(&args)?.0)?;
    let pairs = sorted.try_iter()?.map(|pair| Ok(pair_value((pair.get_item_by_index(0)?, pair.get_item_by_index(1)?))));
    Ok(Value::from(pairs.collect::<Result<Vec<_>, Error>>()?))
}

/// What a loop goes over; minijinja takes None for an empty list.
fn looped(value: &Value, body_bytes: usize) -> Result<Value, Error> {
    if value.is_none() {
        return Err(fail("'NoneType' object is not iterable"));
    }
    let value = match value.kind() {
        ValueKind::Iterable if value.len().is_none() => Value::from(bounds::collected(value)?),
        _ => value.clone(),
    };
    bounds::charge_loop(value.len().unwrap_or(0), body_bytes)?;
    Ok(value)
}

fn batch(state: &State, value: Value, count: usize, fill: Option<Value>) -> Result<Value, Error> {
    bounds::check_count(count)?;
    minijinja::filters::batch(state, value, count, fill)
}

fn slice(state: &State, value: Value, count: usize, fill: Option<Value>) -> Result<Value, Error> {
    bounds::check_count(count)?;
    minijinja::filters::slice(state, value, count, fill)
}

fn format(state: &State, text: &Value, args: Rest<Value>) -> Result<Value, Error> {
    bounds::check_format(text.as_str().unwrap_or_default())?;
    minijinja::filters::format(state, text, args)
}

/// Python's round: to the even neighbour.
fn round(value: &Value, args: Rest<Value>) -> Result<Value, Error> {
    let (positional, kwargs): (&[Value], Kwargs) = from_args(&args)?;
    let precision = match positional.first() {
        Some(precision) => precision.as_i64(),
        None => kwargs.get::<Option<i64>>("precision")?,
    };
    let method: Option<String> = match positional.get(1) {
        Some(method) => Some(str_of(method)),
        None => kwargs.get("method")?,
    };
    kwargs.assert_all_used()?;
    if !is_float(value) {
        return minijinja::filters::round(value.clone(), precision.map(|p| p as i32));
    }
    let (x, digits) = (f64::try_from(value.clone())?, precision.unwrap_or(0).clamp(0, 300) as usize);
    let scale = 10f64.powi(digits as i32);
    Ok(Value::from(match method.as_deref().unwrap_or("common") {
        "ceil" => (x * scale).ceil() / scale,
        "floor" => (x * scale).floor() / scale,
        _ => format!("{x:.digits$}").parse().unwrap_or(x),
    }))
}

fn list(value: &Value) -> Result<Value, Error> {
    Ok(Value::from(bounds::collected(value)?))
}

fn indent(value: &Value, args: Rest<Value>) -> Result<String, Error> {
    let (positional, kwargs): (&[Value], Kwargs) = from_args(&args)?;
    let argument = |at: usize, name: &str| match positional.get(at) {
        Some(value) => Ok(Some(value.clone())),
        None => kwargs.get::<Option<Value>>(name),
    };
    let width = match argument(0, "width")? {
        Some(width) if width.kind() == ValueKind::String => str_of(&width),
        Some(width) => " ".repeat(width.as_usize().filter(|w| *w <= 1000).ok_or_else(|| fail("indent: a bad width"))?),
        None => " ".repeat(4),
    };
    let first = argument(1, "first")?.is_some_and(|v| v.is_true());
    let blank = argument(2, "blank")?.is_some_and(|v| v.is_true());
    kwargs.assert_all_used()?;
    let text = str_of(value) + "\n";
    bounds::charge_string(text.matches('\n').count().checked_mul(width.len()).and_then(|more| more.checked_add(text.len())))?;
    // Jinja2 adds the line's end, and splitlines() takes it
    let mut lines: Vec<&str> = text.split('\n').collect();
    lines.pop();
    let mut out = String::new();
    for (i, line) in lines.iter().enumerate() {
        if i > 0 {
            out.push('\n');
        }
        if (i > 0 && (blank || !line.is_empty())) || (i == 0 && first) {
            out.push_str(&width);
        }
        out.push_str(line);
    }
    Ok(out)
}

fn float(value: &Value, default: Option<f64>) -> f64 {
    let parsed = match value.kind() {
        ValueKind::Number | ValueKind::Bool => f64::try_from(value.clone()).ok().or(Some(f64::from(value.is_true()))),
        ValueKind::String => strip(value.as_str().unwrap_or_default(), None, true, true).parse().ok(),
        _ => None,
    };
    parsed.or(default).unwrap_or(0.0)
}

fn int(value: &Value, default: Option<i64>) -> Value {
    let whole = |x: f64| (x.is_finite() && x.abs() < 1e18).then(|| Value::from(x.trunc() as i64));
    let parsed = match value.kind() {
        ValueKind::Number if !is_float(value) => Some(value.clone()),
        ValueKind::Number => whole(f64::try_from(value.clone()).unwrap_or(0.0)),
        ValueKind::Bool => Some(Value::from(i64::from(value.is_true()))),
        ValueKind::String => {
            let text = strip(value.as_str().unwrap_or_default(), None, true, true);
            text.parse::<i64>().ok().map(Value::from).or_else(|| text.parse().ok().and_then(whole))
        }
        _ => None,
    };
    parsed.unwrap_or_else(|| Value::from(default.unwrap_or(0)))
}

fn escape(value: &Value) -> String {
    let text = str_of(value);
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace('\'', "&#39;").replace('"', "&#34;")
}
