//! The variables of a template from JSON text: order and numbers as they came, and, for tracked values, each string with
//! markers in the place of what could become a control token.
use crate::pyvalue::{BigInt, Dict, List};
use crate::result::Result;
use minijinja::Value;
use serde_json::Value as Json;

pub const MAX_STRING_BYTES: usize = 4 << 20;
const REASONING_FIELDS: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];

pub fn parse(text: &str) -> Result<serde_json::Map<String, Json>> {
    match serde_json::from_str(text) {
        Ok(Json::Object(fields)) => {
            fields.values().try_for_each(check_strings)?;
            Ok(fields)
        }
        Ok(_) => Err("the request must be a JSON object with 'messages'".into()),
        Err(error) => Err(format!("the request is not JSON: {error}").into()),
    }
}

/// Messages as transformers hands them on: the reasoning is known by each of its names.
pub fn alias_reasoning(messages: &mut Json) -> Result<()> {
    let Json::Array(messages) = messages else { return Err("'messages' must be a list".into()) };
    for message in messages {
        let Json::Object(fields) = message else { return Err("each message must be an object".into()) };
        let found = REASONING_FIELDS.iter().filter_map(|name| fields.get(*name)).find(|value| !value.is_null());
        if let Some(reasoning) = found.cloned() {
            let mut aliased = serde_json::Map::new();
            aliased.insert("thinking".into(), reasoning.clone());
            aliased.extend(std::mem::take(fields));
            aliased.insert("reasoning_content".into(), reasoning);
            *fields = aliased;
        }
    }
    Ok(())
}

pub fn to_value(json: &Json, string: &dyn Fn(&str) -> String) -> Value {
    match json {
        Json::Null => Value::from(()),
        Json::Bool(flag) => Value::from(*flag),
        Json::Number(number) => number_value(number),
        Json::String(text) => Value::from(string(text)),
        Json::Array(items) => Value::from_object(List(items.iter().map(|item| to_value(item, string)).collect())),
        Json::Object(fields) => {
            let pairs = fields.iter().map(|(key, item)| (string(key), to_value(item, string)));
            Value::from_object(Dict::new(pairs.collect()))
        }
    }
}

fn number_value(number: &serde_json::Number) -> Value {
    let text = number.as_str();
    if text.contains(['.', 'e', 'E']) {
        return Value::from(text.parse::<f64>().unwrap_or(f64::NAN));
    }
    match (text.parse::<i64>(), text.parse::<i128>()) {
        (Ok(small), _) => Value::from(small),
        (_, Ok(large)) => Value::from(large),
        _ => Value::from_object(BigInt(text.to_owned())),
    }
}

/// Each string of `json`, keys too.
pub fn for_each_string(json: &Json, visit: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
    match json {
        Json::String(text) => visit(text),
        Json::Array(items) => items.iter().try_for_each(|item| for_each_string(item, visit)),
        Json::Object(fields) => fields.iter().try_for_each(|(key, item)| {
            visit(key)?;
            for_each_string(item, visit)
        }),
        _ => Ok(()),
    }
}

fn check_strings(json: &Json) -> Result<()> {
    for_each_string(json, &mut |text| match text.len() {
        0..=MAX_STRING_BYTES => Ok(()),
        size => Err(format!("a string of the request has {size} bytes, more than {MAX_STRING_BYTES}. Split it").into()),
    })
}
