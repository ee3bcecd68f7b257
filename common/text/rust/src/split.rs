//! Hand-written splitters for the pre-tokenizer patterns that most models use. They give exactly the pieces that the
//! regular expressions give in the library's engine, many times faster; the tests compare the two on random text.
//! Character classes are read once from that same engine, so both know the same Unicode version.
use std::sync::OnceLock;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pattern {
    Gpt2,
    Llama3,
    Qwen2,
}

pub const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
pub const QWEN2: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Class {
    Other,
    Letter,
    Number,
    Space,
}

/// Letters, numbers and spaces exist below this only; planes 4 to 16 hold tags and private use.
const CLASSED: usize = 0x40000;

/// Two bits for each code point below CLASSED.
struct Classes(Vec<u8>);

impl Classes {
    fn read() -> Classes {
        let mut table = Classes(vec![0; CLASSED / 4]);
        let all: String = (0..CLASSED as u32).filter_map(char::from_u32).collect();
        for (pattern, class) in [(r"\p{L}+", 1), (r"\p{N}+", 2), (r"\s+", 3)] {
            let regex = onig::Regex::new(pattern).expect("a fixed pattern compiles");
            for (from, to) in regex.find_iter(&all) {
                for c in all[from..to].chars() {
                    table.0[c as usize / 4] |= class << (c as usize % 4 * 2);
                }
            }
        }
        table
    }

    fn of(&self, c: char) -> Class {
        let code = c as usize;
        match self.0.get(code / 4).map_or(0, |four| four >> (code % 4 * 2) & 3) {
            1 => Class::Letter,
            2 => Class::Number,
            3 => Class::Space,
            _ => Class::Other,
        }
    }

    fn get() -> &'static Classes {
        static TABLE: OnceLock<Classes> = OnceLock::new();
        TABLE.get_or_init(Classes::read)
    }
}

/// One position's character: class, size in bytes, and the code point.
#[derive(Clone, Copy)]
struct At {
    class: Class,
    size: usize,
    char: char,
}

pub struct Splitter<'a> {
    text: &'a str,
    pattern: Pattern,
    classes: &'static Classes,
}

impl<'a> Splitter<'a> {
    pub fn new(pattern: Pattern, text: &'a str) -> Self {
        Splitter { text, pattern, classes: Classes::get() }
    }

    fn at(&self, index: usize) -> Option<At> {
        let byte = *self.text.as_bytes().get(index)?;
        let char = if byte < 0x80 { byte as char } else { self.text[index..].chars().next()? };
        Some(At { class: self.classes.of(char), size: char.len_utf8(), char })
    }

    /// The end of the run of `class` that starts at `index`, at most `limit` characters long.
    fn run(&self, mut index: usize, class: Class, limit: usize) -> usize {
        for _ in 0..limit {
            match self.at(index) {
                Some(c) if c.class == class => index += c.size,
                _ => break,
            }
        }
        index
    }

    /// The end of 's, 't, 're, 've, 'm, 'll or 'd at `index`, which holds an apostrophe.
    fn contraction(&self, index: usize) -> Option<usize> {
        let fold = |c: At| -> char {
            match (self.pattern, c.char) {
                (Pattern::Gpt2, c) => c,
                (_, '\u{17f}') => 's', // the long s folds to s
                (_, c) => c.to_ascii_lowercase(),
            }
        };
        let first = self.at(index + 1)?;
        let end = index + 1 + first.size;
        match fold(first) {
            's' | 't' | 'm' | 'd' => Some(end),
            'r' | 'v' => self.at(end).filter(|c| fold(*c) == 'e').map(|c| end + c.size),
            'l' => self.at(end).filter(|c| fold(*c) == 'l').map(|c| end + c.size),
            _ => None,
        }
    }

    /// White space at `index`: all of a run that ends the text, else all but its last character, which may belong to
    /// the next piece; a single one stands alone.
    fn space(&self, index: usize) -> usize {
        let (mut end, mut last) = (index, index);
        while let Some(c) = self.at(end).filter(|c| c.class == Class::Space) {
            last = end;
            end += c.size;
        }
        if end == self.text.len() || last == index {
            end
        } else {
            last
        }
    }

    /// The end of the piece that starts at `index`, which is before the end of the text.
    pub fn next(&self, index: usize) -> usize {
        let Some(first) = self.at(index) else { return self.text.len() };
        if first.char == '\'' {
            if let Some(end) = self.contraction(index) {
                return end;
            }
        }
        match self.pattern {
            Pattern::Gpt2 => self.next_gpt2(index, first),
            Pattern::Llama3 => self.next_llama3(index, first, 3),
            Pattern::Qwen2 => self.next_llama3(index, first, 1),
        }
    }

    fn next_gpt2(&self, index: usize, first: At) -> usize {
        let (start, class) = match self.at(index + first.size) {
            Some(second) if first.char == ' ' => (index + 1, second.class),
            _ => (index, first.class),
        };
        if class == Class::Space || (first.char == ' ' && start == index) {
            return self.space(index);
        }
        self.run(start, class, usize::MAX)
    }

    fn next_llama3(&self, index: usize, first: At, digits: usize) -> usize {
        let newline = |c: char| c == '\r' || c == '\n';
        if first.class == Class::Letter {
            return self.run(index, Class::Letter, usize::MAX);
        }
        if first.class == Class::Number {
            return self.run(index, Class::Number, digits);
        }
        let second = self.at(index + first.size);
        let second_class = second.map(|c| c.class);
        if !newline(first.char) && second_class == Some(Class::Letter) {
            return self.run(index + first.size, Class::Letter, usize::MAX);
        }
        let marks = match first.class {
            Class::Other => Some(index),
            _ if first.char == ' ' && second_class == Some(Class::Other) => Some(index + 1),
            _ => None,
        };
        if let Some(start) = marks {
            let mut end = self.run(start, Class::Other, usize::MAX);
            while self.at(end).is_some_and(|c| newline(c.char)) {
                end += 1;
            }
            return end;
        }
        let run = &self.text[index..self.run(index, Class::Space, usize::MAX)];
        match run.rfind(newline) {
            Some(last) => index + last + 1,
            None => self.space(index),
        }
    }

    /// True if no piece reaches across `index`, whatever comes before and after: a letter ends there, and what follows
    /// neither continues a word nor composes with the letter.
    pub fn is_cut(&self, index: usize) -> bool {
        let Some(next) = self.at(index) else { return false };
        let plain =
            next.char.is_ascii() || matches!(next.char, '\u{3001}' | '\u{3002}' | '\u{ff0c}' | '\u{ff01}' | '\u{ff1f}');
        plain
            && next.class != Class::Letter
            && self.text[..index].chars().next_back().is_some_and(|c| self.is_letter(c))
    }

    fn is_letter(&self, c: char) -> bool {
        self.classes.of(c) == Class::Letter
    }
}

/// Reads the character classes now instead of when the first text comes.
pub fn prepare() {
    Classes::get();
}
