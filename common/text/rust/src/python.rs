//! Values printed into a template's output look as Python prints them: True, None, {'a': 1}.
use crate::json::number;
use minijinja::value::{Value, ValueKind};
use minijinja::{Error, Output, State};
use std::fmt::Write;

pub fn format(out: &mut Output, _: &State, value: &Value) -> Result<(), Error> {
    match value.as_str() {
        Some(text) => out.write_str(text).map_err(Error::from),
        None => out.write_str(&string(value)).map_err(Error::from),
    }
}

/// Python's str().
pub fn string(value: &Value) -> String {
    match value.kind() {
        ValueKind::Undefined => String::new(),
        ValueKind::String => value.to_string(),
        _ => repr(value),
    }
}

fn repr(value: &Value) -> String {
    match value.kind() {
        ValueKind::None => "None".into(),
        ValueKind::Bool => (if value.is_true() { "True" } else { "False" }).into(),
        ValueKind::Number => number(value).replace("NaN", "nan").replace("Infinity", "inf"),
        ValueKind::String => quote(value.as_str().unwrap_or_default()),
        ValueKind::Seq => {
            let items: Vec<String> =
                value.try_iter().map(|items| items.map(|v| repr(&v)).collect()).unwrap_or_default();
            format!("[{}]", items.join(", "))
        }
        ValueKind::Map => {
            let item = |key: Value| format!("{}: {}", repr(&key), repr(&value.get_item(&key).unwrap_or_default()));
            let items: Vec<String> = value.try_iter().map(|keys| keys.map(item).collect()).unwrap_or_default();
            format!("{{{}}}", items.join(", "))
        }
        _ => value.to_string(),
    }
}

fn quote(text: &str) -> String {
    let mark = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let mut out = String::from(mark);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == mark => {
                out.push('\\');
                out.push(c);
            }
            c if (c as u32) < 0x20 || c as u32 == 0x7f => {
                let _ = write!(out, "\\x{:02x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push(mark);
    out
}

/// `strftime` of a moment in UTC, with the codes that templates use. Errors name an unknown code.
pub fn strftime(format: &str, unix_seconds: i64) -> Result<String, String> {
    const MONTHS: [&str; 12] = [
        "January",
        "February",
        "March",
        "April",
        "May",
        "June",
        "July",
        "August",
        "September",
        "October",
        "November",
        "December",
    ];
    const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
    let (days, second) = (unix_seconds.div_euclid(86400), unix_seconds.rem_euclid(86400));
    let (year, month, day) = civil(days);
    let (hour, weekday) = (second / 3600, (days + 4).rem_euclid(7) as usize);
    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let month_name = MONTHS[month as usize - 1];
        let piece = match chars.next() {
            Some('Y') => year.to_string(),
            Some('y') => format!("{:02}", year.rem_euclid(100)),
            Some('m') => format!("{month:02}"),
            Some('d') => format!("{day:02}"),
            Some('e') => format!("{day:2}"),
            Some('-') if matches!(chars.clone().next(), Some('d')) => {
                chars.next().map(|_| day.to_string()).unwrap_or_default()
            }
            Some('B') => month_name.into(),
            Some('b') | Some('h') => month_name[..3].into(),
            Some('A') => DAYS[weekday].into(),
            Some('a') => DAYS[weekday][..3].into(),
            Some('H') => format!("{hour:02}"),
            Some('I') => format!("{:02}", (hour + 11) % 12 + 1),
            Some('p') => (if hour < 12 { "AM" } else { "PM" }).into(),
            Some('M') => format!("{:02}", second / 60 % 60),
            Some('S') => format!("{:02}", second % 60),
            Some('F') => format!("{year}-{month:02}-{day:02}"),
            Some('T') => format!("{hour:02}:{:02}:{:02}", second / 60 % 60, second % 60),
            Some('Z') => "UTC".into(),
            Some('z') => "+0000".into(),
            Some('%') => "%".into(),
            other => {
                return Err(format!("strftime_now does not know %{}", other.map(String::from).unwrap_or_default()))
            }
        };
        out.push_str(&piece);
    }
    Ok(out)
}

/// Year, month and day of a count of days since 1970-01-01 in the Gregorian calendar. Years are counted from March, so
/// that the leap day is the last of its year.
fn civil(days: i64) -> (i64, i64, i64) {
    let since = days + 719_468; // from 0000-03-01
    let (era, of_era) = (since.div_euclid(146_097), since.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}
