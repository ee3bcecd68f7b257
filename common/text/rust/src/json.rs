//! JSON as Python's `json.dumps` writes it, which is what chat templates were written against.
use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{Error, ErrorKind};

struct Style {
    indent: Option<String>,
    item: String,
    key: String,
    ensure_ascii: bool,
    sort_keys: bool,
}

/// The `tojson` filter of transformers: no HTML escapes, ", " and ": " between parts, keyword arguments as in Python.
pub fn tojson(value: &Value, options: Kwargs) -> Result<Value, Error> {
    let indent = match options.get::<Option<Value>>("indent")? {
        None => None,
        Some(v) if v.is_none() || v.is_undefined() => None,
        Some(v) => Some(match v.as_str() {
            Some(text) => text.to_string(),
            None => " ".repeat(usize::try_from(v)?.min(32)),
        }),
    };
    let separators = options.get::<Option<Vec<String>>>("separators")?;
    let (item, key) = match separators.as_deref() {
        Some([item, key]) => (item.clone(), key.clone()),
        Some(_) => return Err(Error::new(ErrorKind::InvalidOperation, "separators must be two strings")),
        None => ((if indent.is_some() { "," } else { ", " }).into(), ": ".into()),
    };
    let ensure_ascii = options.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false);
    let sort_keys = options.get::<Option<bool>>("sort_keys")?.unwrap_or(false);
    options.assert_all_used()?;
    let mut out = String::new();
    write(value, &Style { indent, item, key, ensure_ascii, sort_keys }, 0, &mut out)?;
    Ok(Value::from_safe_string(out))
}

fn write(value: &Value, style: &Style, depth: usize, out: &mut String) -> Result<(), Error> {
    match value.kind() {
        ValueKind::None | ValueKind::Undefined => out.push_str("null"),
        ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number => out.push_str(&number(value)),
        ValueKind::String => quote(value.as_str().unwrap_or_default(), style.ensure_ascii, out),
        ValueKind::Seq | ValueKind::Iterable => {
            let items: Vec<Value> = value.try_iter()?.collect();
            list(&items, ('[', ']'), style, depth, out, &mut |item, out| write(item, style, depth + 1, out))?;
        }
        ValueKind::Map => {
            let mut keys: Vec<Value> = value.try_iter()?.collect();
            if style.sort_keys {
                keys.sort();
            }
            list(&keys, ('{', '}'), style, depth, out, &mut |key, out| {
                quote(&key.to_string(), style.ensure_ascii, out);
                out.push_str(&style.key);
                write(&value.get_item(key)?, style, depth + 1, out)
            })?;
        }
        _ => {
            return Err(Error::new(
                ErrorKind::InvalidOperation,
                format!("a {} cannot be written as JSON", value.kind()),
            ))
        }
    }
    Ok(())
}

fn list(
    items: &[Value],
    (open, close): (char, char),
    style: &Style,
    depth: usize,
    out: &mut String,
    each: &mut dyn FnMut(&Value, &mut String) -> Result<(), Error>,
) -> Result<(), Error> {
    out.push(open);
    let line = |depth: usize, out: &mut String| {
        if let Some(indent) = &style.indent {
            out.push('\n');
            (0..depth).for_each(|_| out.push_str(indent));
        }
    };
    for (i, item) in items.iter().enumerate() {
        if i > 0 {
            out.push_str(&style.item);
        }
        line(depth + 1, out);
        each(item, out)?;
    }
    if !items.is_empty() {
        line(depth, out);
    }
    out.push(close);
    Ok(())
}

/// Numbers as Python's repr gives them.
pub fn number(value: &Value) -> String {
    if value.is_integer() {
        return value.to_string();
    }
    let Ok(float) = f64::try_from(value.clone()) else { return value.to_string() };
    if float.is_nan() {
        return "NaN".into();
    }
    if float.is_infinite() {
        return if float > 0.0 { "Infinity".into() } else { "-Infinity".into() };
    }
    let size = float.abs();
    if size != 0.0 && !(1e-4..1e16).contains(&size) {
        let text = format!("{float:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let power: i32 = exponent.parse().unwrap_or(0);
        return format!("{digits}e{}{:02}", if power < 0 { '-' } else { '+' }, power.abs());
    }
    let text = float.to_string();
    if text.contains('.') {
        text
    } else {
        text + ".0"
    }
}

fn quote(text: &str, ensure_ascii: bool, out: &mut String) {
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
            c if (c as u32) < 0x20 || (ensure_ascii && !c.is_ascii()) => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    out.push_str(&format!("\\u{unit:04x}"));
                }
            }
            c => out.push(c),
        }
    }
    out.push('"');
}
