//! Chat templates: minijinja with the settings and functions that transformers gives Jinja.
use crate::ffi::{guard, Failure, Sink, Slice, Status};
use crate::{json, python};
use minijinja::value::ValueKind;
use minijinja::{context, Environment, Error, ErrorKind, Value};
use std::io::{self, Write};

const FUEL: u64 = 1_000_000;
const OUTPUT_BYTES_MAX: usize = 4 << 20;
const SOURCE_BYTES_MAX: usize = 1 << 20;
const NAME: &str = "chat_template";

pub struct Template {
    environment: Environment<'static>,
}

/// Collects output up to the limit.
struct Limited(Vec<u8>);

impl Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > OUTPUT_BYTES_MAX {
            return Err(io::Error::other("output limit"));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// transformers has a block that marks what the assistant said, for training. It changes nothing in the text, so it
/// becomes a condition that always holds.
fn without_generation_blocks(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(open) = rest.find("{%") {
        let Some(length) = rest[open..].find("%}") else { break };
        let tag = &rest[open + 2..open + length];
        let name = tag.trim_start_matches(['-', '+']).trim_end_matches(['-', '+']).trim();
        let condition = match name {
            "generation" => Some("if true"),
            "endgeneration" => Some("endif"),
            _ => None,
        };
        out.push_str(&rest[..open]);
        match condition {
            Some(condition) => out.push_str(&format!("{{%{}%}}", tag.replace(name, &format!(" {condition} ")))),
            None => out.push_str(&rest[open..open + length + 2]),
        }
        rest = &rest[open + length + 2..];
    }
    out + rest
}

fn sentence(error: &Error) -> String {
    let mut text = format!("{error:#}");
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        text.push_str(&format!(": {inner}"));
        cause = inner.source();
    }
    text.split('\n').next().unwrap_or_default().chars().take(500).collect()
}

fn environment(source: &str, constants: &[u8]) -> Result<Environment<'static>, Failure> {
    let mut env = Environment::new();
    let constants = variables(constants)?;
    for name in constants.try_iter().map_err(|e| Failure::invalid(sentence(&e)))? {
        let value = constants.get_item(&name).unwrap_or_default();
        env.add_global(name.to_string(), value);
    }
    env.set_trim_blocks(true);
    env.set_lstrip_blocks(true);
    env.set_fuel(Some(FUEL));
    env.set_recursion_limit(128);
    env.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    env.set_formatter(python::format);
    env.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    env.add_filter("tojson", |value: Value, options: minijinja::value::Kwargs| json::tojson(&value, options));
    env.add_filter("string", |value: Value| python::string(&value));
    env.add_function("raise_exception", |message: String| -> Result<String, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, message))
    });
    env.add_function("strftime_now", |state: &minijinja::State, format: String| -> Result<String, Error> {
        let now = state.lookup("__now_unix_seconds").and_then(|v| i64::try_from(v).ok()).unwrap_or(0);
        python::strftime(&format, now).map_err(|e| Error::new(ErrorKind::InvalidOperation, e))
    });
    env.add_template_owned(NAME, without_generation_blocks(source))
        .map_err(|e| Failure::invalid(format!("the chat template cannot be read: {}", sentence(&e))))?;
    Ok(env)
}

/// JSON straight to the engine's values: long texts are copied once.
fn variables(json: &[u8]) -> Result<Value, Failure> {
    let variables: Value = serde_json::from_slice(json)
        .map_err(|e| Failure::invalid(format!("the template's variables are not JSON: {e}")))?;
    if variables.kind() != ValueKind::Map {
        return Err(Failure::invalid("the template's variables are not a JSON object"));
    }
    Ok(variables)
}

fn render(template: &Template, json: &[u8], now: i64) -> Result<Vec<u8>, Failure> {
    let context = context! { __now_unix_seconds => now, ..variables(json)? };
    let compiled = template.environment.get_template(NAME).map_err(|e| Failure::invalid(sentence(&e)))?;
    // Room for a text as long as its variables, which is what most templates write.
    let mut out = Limited(Vec::with_capacity(json.len().min(OUTPUT_BYTES_MAX)));
    match compiled.render_captured_to(context, &mut out) {
        Ok(_) => Ok(out.0),
        Err(e) if e.kind() == ErrorKind::OutOfFuel => {
            Err(Failure::exhausted(format!("the chat template took more than {FUEL} steps")))
        }
        Err(e) if e.kind() == ErrorKind::WriteFailure => {
            Err(Failure::exhausted(format!("the chat template wrote more than {OUTPUT_BYTES_MAX} bytes")))
        }
        Err(e) => Err(Failure::invalid(format!("the chat template failed: {}", sentence(&e)))),
    }
}

/// # Safety
/// `source` and `constants` valid, `out` writable. The result is freed with `penstock_text_template_free`.
#[no_mangle]
pub unsafe extern "C" fn penstock_text_template_compile(
    source: Slice,
    constants: Slice,
    out: *mut *mut Template,
    sink: Sink,
) -> Status {
    guard(sink, || {
        let source = source.text("the chat template")?;
        if source.len() > SOURCE_BYTES_MAX {
            return Err(Failure::invalid(format!("the chat template is over {SOURCE_BYTES_MAX} bytes")));
        }
        out.write(Box::into_raw(Box::new(Template { environment: environment(source, constants.bytes())? })));
        Ok(())
    })
}

/// # Safety
/// `template` comes from this library and is freed once.
#[no_mangle]
pub unsafe extern "C" fn penstock_text_template_free(template: *mut Template) {
    drop(Box::from_raw(template));
}

/// # Safety
/// `template` and `variables` valid.
#[no_mangle]
pub unsafe extern "C" fn penstock_text_template_render(
    template: *const Template,
    variables: Slice,
    now: i64,
    sink: Sink,
) -> Status {
    guard(sink, || {
        sink.put(&render(&*template, variables.bytes(), now)?);
        Ok(())
    })
}
