//! Chat templates, rendered as transformers renders them with Jinja2.
use crate::bounds;
use crate::pyvalue::str_of;
use crate::request;
use crate::result::Result;
use minijinja::{Environment, Error, ErrorKind, Value};
use serde_json::Value as Json;
use std::sync::Arc;

/// Steps of the template machine for one rendering: some seconds. A template that loops for ever ends here.
const FUEL: u64 = 10_000_000;
const NAME: &str = "chat";

/// A time (ISO 8601, or empty for this moment) in a format of C's strftime; nothing where it is no time.
pub type Clock = Arc<dyn Fn(&str, &str) -> Option<String> + Send + Sync>;

pub struct ChatTemplate {
    env: Environment<'static>,
}

/// A template's own raise_exception.
#[derive(Debug)]
pub struct Raised(pub String);

impl std::fmt::Display for Raised {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Raised {}

impl ChatTemplate {
    pub fn new(source: &str) -> Result<ChatTemplate> {
        let mut env = Environment::new();
        env.set_trim_blocks(true);
        env.set_lstrip_blocks(true);
        env.set_fuel(Some(FUEL));
        env.set_formatter(|out, _, value| {
            let text = str_of(value);
            bounds::charge_string(Some(text.len()))?;
            out.write_str(&text).map_err(Error::from)
        });
        env.set_unknown_method_callback(crate::pymethods::call);
        minijinja_contrib::add_to_environment(&mut env);
        crate::pyfilters::add_to(&mut env);
        env.add_function("raise_exception", raise_exception);
        bounds::check_size(source)?;
        let source = crate::jinja_source::adapted(&source.replace("\r\n", "\n").replace('\r', "\n"));
        bounds::check_tags(&source)?;
        env.add_template_owned(NAME, bounds::late_products(&source)).map_err(|error| describe(&error))?;
        Ok(ChatTemplate { env })
    }

    /// `fields`: the request. Every string of it but the special tokens goes through `string`.
    pub fn render(
        &self, mut fields: serde_json::Map<String, Json>, string: &dyn Fn(&str) -> String, clock: Clock,
    ) -> Result<String> {
        let now = match fields.shift_remove("now") {
            None | Some(Json::Null) => String::new(),
            Some(Json::String(now)) => now,
            Some(_) => return Err("'now' must be a string: a time as 2026-01-31T12:00:00".into()),
        };
        let special_tokens = fields.shift_remove("special_tokens").unwrap_or(Json::Null);
        let messages = fields.get_mut("messages").ok_or("the request has no 'messages'")?;
        request::alias_reasoning(messages)?;
        fields.entry("add_generation_prompt").or_insert(Json::Bool(true));
        for absent in ["tools", "documents"] {
            fields.entry(absent).or_insert(Json::Null);
        }
        let mut context: Vec<(String, Value)> = Vec::new();
        if let Json::Object(tokens) = &special_tokens {
            context.extend(tokens.iter().map(|(name, token)| (name.clone(), request::to_value(token, &str::to_owned))));
        }
        context.extend(fields.iter().map(|(name, value)| (name.clone(), request::to_value(value, string))));
        context.push(("strftime_now".into(), strftime_now(now, clock)));
        let template = self.env.get_template(NAME).map_err(|error| describe(&error))?;
        bounds::begin();
        let mut prompt = Prompt(Vec::new());
        match template.render_captured_to(context.into_iter().collect::<Value>(), &mut prompt) {
            Ok(_) => Ok(String::from_utf8(prompt.0)?),
            Err(error) => Err(match raised(&error) {
                Some(message) => Raised(message).into(),
                None => describe(&error).into(),
            }),
        }
    }
}

/// What is rendered, up to a size that no context holds.
struct Prompt(Vec<u8>);

impl std::io::Write for Prompt {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        bounds::check_prompt(self.0.len() + text.len()).map_err(std::io::Error::other)?;
        self.0.extend_from_slice(text);
        Ok(text.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn strftime_now(now: String, clock: Clock) -> Value {
    Value::from_function(move |format: &str| {
        let bad_time = || Error::new(ErrorKind::InvalidOperation, format!("'now' is not a time as 2026-01-31T12:00:00: {now}"));
        clock(&now, format).ok_or_else(bad_time)
    })
}

fn raise_exception(message: &Value) -> std::result::Result<Value, Error> {
    let message = str_of(message);
    Err(Error::new(ErrorKind::InvalidOperation, message.clone()).with_source(Raised(message)))
}

/// The message of raise_exception, if that is what ended the rendering.
fn raised(error: &Error) -> Option<String> {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(inner) = source {
        if let Some(raised) = inner.downcast_ref::<Raised>() {
            return Some(raised.0.clone());
        }
        source = inner.source();
    }
    None
}

fn describe(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        text = format!("{text}: {inner}");
        source = inner.source();
    }
    text
}
