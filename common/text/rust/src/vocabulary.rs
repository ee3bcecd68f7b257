//! The tokenizer of a GGUF vocabulary, byte-level BPE ("gpt2"). What is not known for certain is refused by name.
use crate::ffi::Failure;
use crate::split::{LLAMA3, QWEN2};
use tokenizers::models::bpe::{Vocab, BPE};
use tokenizers::normalizers::unicode::NFC;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::processors::template::TemplateProcessing;
use tokenizers::{AddedToken, NormalizerWrapper, PreTokenizerWrapper, SplitDelimiterBehavior, Tokenizer};

/// Values of tokenizer.ggml.token_type.
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;

pub struct Parts<'a> {
    pub model: &'a str,
    pub pre: &'a str,
    pub tokens: Vec<&'a str>,
    pub types: &'a [i32],
    pub merges: Vec<&'a str>,
    /// Ids put before and after a text on request.
    pub prefix: Option<u32>,
    pub suffix: Option<u32>,
}

struct PreTokenizing {
    steps: PreTokenizerWrapper,
    /// A piece that is a token as a whole is taken as it is.
    ignore_merges: bool,
}

fn split(pattern: &str) -> Result<PreTokenizerWrapper, Failure> {
    let split = Split::new(SplitPattern::Regex(pattern.into()), SplitDelimiterBehavior::Isolated, false)
        .map_err(|e| Failure::invalid(e.to_string()))?;
    Ok(Sequence::new(vec![split.into(), ByteLevel::new(false, false, false).into()]).into())
}

fn pre_tokenizing(name: &str) -> Result<PreTokenizing, Failure> {
    let gpt2 = ByteLevel::new(false, true, true);
    let (steps, ignore_merges) = match name {
        "gpt-2" | "gpt2" => (gpt2.into(), false),
        "smollm" => (Sequence::new(vec![Digits::new(true).into(), gpt2.into()]).into(), false),
        "llama-bpe" | "llama-v3" | "llama3" => (split(LLAMA3)?, true),
        "qwen2" => (split(QWEN2)?, false),
        "" => return Err(Failure::unsupported("the vocabulary does not name its pre-tokenizer (tokenizer.ggml.pre)")),
        other => return Err(Failure::unsupported(format!("the pre-tokenizer \"{other}\" is unknown"))),
    };
    Ok(PreTokenizing { steps, ignore_merges })
}

/// "left right"; a token may itself begin with a space, so the first byte never separates.
fn merge(text: &str) -> Result<(String, String), Failure> {
    let at = text.bytes().skip(1).position(|b| b == b' ').map(|at| at + 1);
    match at {
        Some(at) if at + 1 < text.len() => Ok((text[..at].to_string(), text[at + 1..].to_string())),
        _ => Err(Failure::invalid(format!("the merge {text:?} is not two tokens"))),
    }
}

pub fn build(parts: &Parts) -> Result<Tokenizer, Failure> {
    if parts.model != "gpt2" {
        return Err(Failure::unsupported(format!(
            "the vocabulary kind \"{}\" is unknown; \"gpt2\" is supported",
            parts.model
        )));
    }
    let pre = pre_tokenizing(parts.pre)?;
    if parts.tokens.is_empty() || parts.types.len() != parts.tokens.len() {
        return Err(Failure::invalid(format!(
            "the vocabulary has {} tokens but {} token types",
            parts.tokens.len(),
            parts.types.len()
        )));
    }
    let mut vocab = Vocab::default();
    let mut added = Vec::new();
    for (id, (token, kind)) in parts.tokens.iter().zip(parts.types).enumerate() {
        if vocab.insert(token.to_string(), id as u32).is_some() {
            return Err(Failure::invalid(format!("the vocabulary has {token:?} twice, the second time as token {id}")));
        }
        if *kind == CONTROL || *kind == USER_DEFINED {
            added.push(AddedToken::from(token.to_string(), *kind == CONTROL).normalized(false));
        }
    }
    let merges = parts.merges.iter().map(|m| merge(m)).collect::<Result<Vec<_>, _>>()?;
    let bpe = BPE::builder()
        .vocab_and_merges(vocab, merges)
        .ignore_merges(pre.ignore_merges)
        .build()
        .map_err(|e| Failure::invalid(format!("the vocabulary does not fit together: {e}")))?;
    let mut tokenizer = Tokenizer::new(bpe);
    if parts.pre == "qwen2" {
        tokenizer.with_normalizer(Some(NormalizerWrapper::NFC(NFC))).map_err(|e| Failure::invalid(e.to_string()))?;
    }
    tokenizer.with_pre_tokenizer(Some(pre.steps));
    tokenizer.with_decoder(Some(ByteLevel::new(false, true, true)));
    tokenizer.add_tokens(added).map_err(|e| Failure::invalid(e.to_string()))?;
    add_post_processor(&mut tokenizer, parts)?;
    Ok(tokenizer)
}

fn add_post_processor(tokenizer: &mut Tokenizer, parts: &Parts) -> Result<(), Failure> {
    if parts.prefix.is_none() && parts.suffix.is_none() {
        return Ok(());
    }
    let mut template = Vec::new();
    let mut special = Vec::new();
    let mut put = |id: Option<u32>, template: &mut Vec<String>| -> Result<(), Failure> {
        let Some(id) = id else { return Ok(()) };
        let token = parts
            .tokens
            .get(id as usize)
            .ok_or_else(|| Failure::invalid(format!("special token {id} is outside the vocabulary")))?;
        // Named by role: the template's own syntax gives some characters of a spelling a meaning.
        let name = format!("special{}", template.len());
        template.push(name.clone());
        special.push(
            tokenizers::processors::template::SpecialToken::new(name, vec![id], vec![token.to_string()])
                .map_err(|e| Failure::invalid(e.to_string()))?,
        );
        Ok(())
    };
    put(parts.prefix, &mut template)?;
    template.push("$A".into());
    put(parts.suffix, &mut template)?;
    let processor = TemplateProcessing::builder()
        .try_single(template)
        .map_err(|e| Failure::invalid(e.to_string()))?
        .special_tokens(special)
        .build()
        .map_err(|e| Failure::invalid(e.to_string()))?;
    tokenizer.with_post_processor(Some(processor));
    Ok(())
}
