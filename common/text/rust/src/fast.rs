//! A fast path for the usual kinds of byte-level BPE: hand-written splitter and word cache around the library's model.
//! It gives the ids that the library gives, and knows where a text may be cut.
use crate::bytes::byte_chars;
use crate::ffi::Failure;
use crate::split::{Pattern, Splitter, LLAMA3, QWEN2};
use crate::words::Words;
use crate::work::Work;
use aho_corasick::{AhoCorasick, MatchKind};
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{
    Model, ModelWrapper, NormalizedString, Normalizer, NormalizerWrapper, PreTokenizerWrapper, SplitDelimiterBehavior,
    Tokenizer,
};

/// A piece for the token cache ends at the first cut after this many bytes ...
const PIECE_BYTES: usize = 4096;
/// ... or after a special token once it has this many, so that the turns of a chat are pieces of their own.
const PIECE_BYTES_AT_SPECIAL: usize = 512;

/// Finds added tokens, leftmost and longest, as the library does.
struct Matcher {
    search: AhoCorasick,
    ids: Vec<u32>,
    special: Vec<bool>,
}

/// What the fast path needs to know of a tokenizer that it can do.
pub struct Fast {
    pattern: Pattern,
    single_digits: bool,
    nfc: bool,
    /// Tokens found in the text as it is, then those found in what is left.
    matchers: Vec<Matcher>,
    byte_chars: [char; 256],
    words: Words,
}

fn known_split(split: &Split) -> Option<Pattern> {
    let SplitPattern::Regex(regex) = &split.pattern else { return None };
    if split.behavior != SplitDelimiterBehavior::Isolated || split.invert {
        return None;
    }
    match regex.as_str() {
        LLAMA3 => Some(Pattern::Llama3),
        QWEN2 => Some(Pattern::Qwen2),
        _ => None,
    }
}

/// The pattern, and whether digits are split off one by one first.
fn known_steps(steps: &PreTokenizerWrapper) -> Option<(Pattern, bool)> {
    match steps {
        PreTokenizerWrapper::ByteLevel(b) if !b.add_prefix_space && b.use_regex => Some((Pattern::Gpt2, false)),
        PreTokenizerWrapper::Sequence(s) => match s.as_ref() {
            [PreTokenizerWrapper::Digits(d), PreTokenizerWrapper::ByteLevel(b)]
                if d.individual_digits && !b.add_prefix_space && b.use_regex =>
            {
                Some((Pattern::Gpt2, true))
            }
            [PreTokenizerWrapper::Split(split), PreTokenizerWrapper::ByteLevel(b)]
                if !b.add_prefix_space && !b.use_regex =>
            {
                known_split(split).map(|pattern| (pattern, false))
            }
            _ => None,
        },
        _ => None,
    }
}

impl Matcher {
    fn new(tokens: Vec<(String, u32, bool)>) -> Option<Matcher> {
        let search =
            AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(tokens.iter().map(|t| &t.0)).ok()?;
        Some(Matcher {
            search,
            ids: tokens.iter().map(|t| t.1).collect(),
            special: tokens.iter().map(|t| t.2).collect(),
        })
    }
}

impl Fast {
    pub fn of(tokenizer: &Tokenizer) -> Option<Fast> {
        let nfc = match tokenizer.get_normalizer() {
            None => false,
            Some(NormalizerWrapper::NFC(_)) => true,
            Some(_) => return None,
        };
        let ModelWrapper::BPE(_) = tokenizer.get_model() else { return None };
        let (pattern, single_digits) = known_steps(tokenizer.get_pre_tokenizer()?)?;
        let (mut first, mut second) = (Vec::new(), Vec::new());
        for (id, token) in tokenizer.get_added_tokens_decoder() {
            if token.lstrip || token.rstrip || token.single_word || (nfc && token.normalized) {
                return None;
            }
            let list = if token.normalized { &mut second } else { &mut first };
            list.push((token.content.clone(), id, token.special));
        }
        let matchers =
            [first, second].into_iter().filter(|list| !list.is_empty()).map(Matcher::new).collect::<Option<_>>()?;
        crate::split::prepare();
        Some(Fast { pattern, single_digits, nfc, matchers, byte_chars: byte_chars(), words: Words::new() })
    }

    /// Calls `found` with each added token and each stretch between them, in order.
    fn walk(&self, text: &str, base: usize, level: usize, found: &mut dyn FnMut(usize, usize, Option<(u32, bool)>)) {
        let Some(matcher) = self.matchers.get(level) else {
            if !text.is_empty() {
                found(base, base + text.len(), None);
            }
            return;
        };
        let mut done = 0;
        for m in matcher.search.find_iter(text) {
            self.walk(&text[done..m.start()], base + done, level + 1, found);
            let which = m.pattern().as_usize();
            found(base + m.start(), base + m.end(), Some((matcher.ids[which], matcher.special[which])));
            done = m.end();
        }
        self.walk(&text[done..], base + done, level + 1, found);
    }

    /// As `walk`, but special tokens that stay text are part of the stretches around them.
    fn stretches(&self, text: &str, as_text: bool, found: &mut dyn FnMut(usize, usize, Option<u32>)) {
        let mut open = None;
        let close = |upto: usize, open: &mut Option<usize>, found: &mut dyn FnMut(usize, usize, Option<u32>)| {
            if let Some(start) = open.take() {
                found(start, upto, None);
            }
        };
        self.walk(text, 0, 0, &mut |from, to, token| match token {
            Some((id, special)) if !(as_text && special) => {
                close(from, &mut open, found);
                found(from, to, Some(id));
            }
            _ => {
                open.get_or_insert(from);
            }
        });
        close(text.len(), &mut open, found);
    }

    pub fn encode(
        &self,
        tokenizer: &Tokenizer,
        text: &str,
        as_text: bool,
        work: &mut Work,
        ids: &mut Vec<u32>,
    ) -> Result<(), Failure> {
        let mut result = Ok(());
        self.stretches(text, as_text, &mut |from, to, token| match token {
            Some(id) => ids.push(id),
            None if result.is_ok() => result = self.encode_plain(tokenizer, &text[from..to], work, ids),
            None => {}
        });
        result
    }

    fn encode_plain(
        &self,
        tokenizer: &Tokenizer,
        text: &str,
        work: &mut Work,
        ids: &mut Vec<u32>,
    ) -> Result<(), Failure> {
        if self.nfc && !text.chars().all(stays_in_nfc) {
            let mut normal = NormalizedString::from(text);
            let normalizer = tokenizer.get_normalizer().ok_or_else(|| Failure::invalid("no normalizer"))?;
            normalizer.normalize(&mut normal).map_err(|e| Failure::invalid(e.to_string()))?;
            return self.encode_words(tokenizer, normal.get(), work, ids);
        }
        if !self.single_digits {
            return self.encode_words(tokenizer, text, work, ids);
        }
        let mut start = 0;
        for (at, digit) in text.char_indices().filter(|(_, c)| c.is_numeric()) {
            self.encode_words(tokenizer, &text[start..at], work, ids)?;
            start = at + digit.len_utf8();
            self.encode_words(tokenizer, &text[at..start], work, ids)?;
        }
        self.encode_words(tokenizer, &text[start..], work, ids)
    }

    fn encode_words(
        &self,
        tokenizer: &Tokenizer,
        text: &str,
        work: &mut Work,
        ids: &mut Vec<u32>,
    ) -> Result<(), Failure> {
        let splitter = Splitter::new(self.pattern, text);
        let mut start = 0;
        while start < text.len() {
            let end = splitter.next(start);
            let word = &text[start..end];
            start = end;
            if self.words.append(word, ids) {
                continue;
            }
            work.take(word.len())?;
            let spelled: String = word.bytes().map(|byte| self.byte_chars[byte as usize]).collect();
            let tokens = tokenizer.get_model().tokenize(&spelled).map_err(|e| Failure::invalid(e.to_string()))?;
            let first = ids.len();
            ids.extend(tokens.iter().map(|token| token.id));
            self.words.insert(word, &ids[first..]);
        }
        Ok(())
    }

    /// Ends of pieces that can be encoded on their own: see `Splitter::is_cut`. They depend only on the text before
    /// them and on where added tokens are found in it.
    pub fn pieces(&self, text: &str, as_text: bool) -> Vec<usize> {
        let splitter = Splitter::new(self.pattern, text);
        let bytes = text.as_bytes();
        let mut ends = Vec::new();
        let mut start = 0;
        self.walk(text, 0, 0, &mut |from, to, token| {
            if let Some((_, special)) = token {
                // A special token that stays text is no boundary, nor is any place inside it.
                if !(as_text && special) && to - start >= PIECE_BYTES_AT_SPECIAL {
                    ends.push(to);
                    start = to;
                }
                return;
            }
            let mut at = from.max(start + PIECE_BYTES) + 1;
            while at < to {
                // Half of all cuts in prose are before a space, and bytes are quicker to look at than characters.
                let likely = bytes[at] < 0x80 || bytes[at] >= 0xe3;
                if likely && text.is_char_boundary(at) && splitter.is_cut(at) {
                    ends.push(at);
                    start = at;
                    at += PIECE_BYTES;
                }
                at += 1;
            }
        });
        if start < text.len() {
            ends.push(text.len());
        }
        ends
    }
}

/// Characters that NFC never changes and that never change their neighbours; others take the slower way.
fn stays_in_nfc(c: char) -> bool {
    matches!(c as u32,
        0..=0x2ff | 0x400..=0x482 | 0x2010..=0x2027 | 0x3001..=0x3029 | 0x3041..=0x3096 | 0x30a1..=0x30fa
        | 0x4e00..=0x9fff | 0xff01..=0xff60 | 0x1f300..=0x1faff)
}
