//! One tokenizer.json, run by the `tokenizers` crate. What is ours is only which added tokens may match.
use tokenizers::tokenizer::{
    Decoder, Model, Normalizer, OffsetReferential, OffsetType, PostProcessor, PreTokenizedString, PreTokenizer, Token,
};
use crate::result::Result;
use crate::tracked::{is_space, Needles};
use std::collections::HashSet;
use std::sync::OnceLock;
use tokenizers::{DecoderWrapper, Encoding, NormalizedString};

/// Which strings of a text may match added tokens (special or not). Runs of white space, which some vocabularies have as
/// added tokens, control nothing: they always match, as in the Python library.
pub enum Controls<'a> {
    None,
    All,
    /// All that touch none of these byte ranges (ascending, not overlapping, on character boundaries).
    Outside(&'a [(usize, usize)]),
}

pub struct Tok {
    pub inner: tokenizers::Tokenizer,
    /// What the file's own post-processor puts before and after a text.
    pub prefix: Vec<u32>,
    pub suffix: Vec<u32>,
    pub byte_level: bool,
    pub byte_fallback: bool,
    /// Added tokens that are white space.
    spaces: HashSet<u32>,
    needles: OnceLock<std::result::Result<Needles, String>>,
}

type Split = (NormalizedString, Option<Vec<Token>>);
type ControlMatch = (usize, usize, u32);

impl Tok {
    pub fn from_json(json: &[u8]) -> Result<Tok> {
        let mut inner = tokenizers::Tokenizer::from_bytes(json)?;
        inner.with_truncation(None)?; // a prompt is never cut in silence
        inner.with_padding(None);
        let (prefix, suffix) = affixes(&inner)?;
        let added = inner.get_added_vocabulary().get_added_tokens_decoder();
        let spaces = added.iter().filter(|token| is_space(&token.1.content)).map(|token| *token.0).collect();
        let kinds = match inner.get_decoder() {
            Some(decoder) => decoder_kinds(decoder),
            None => (false, false),
        };
        Ok(Tok { inner, prefix, suffix, byte_level: kinds.0, byte_fallback: kinds.1, spaces, needles: OnceLock::new() })
    }

    /// Ids with byte offsets into `text`; the post-processor is not applied.
    pub fn encode(&self, text: &str, controls: Controls) -> Result<Encoding> {
        if text.is_empty() {
            return Ok(Encoding::default());
        }
        let normalizer = self.inner.get_normalizer();
        let mut pieces = match controls {
            Controls::None if self.spaces.is_empty() => self.split_at(text, &[])?,
            Controls::None => self.split_spaces(text)?,
            Controls::All => self.inner.get_added_vocabulary().extract_and_normalize(normalizer, text),
            Controls::Outside(ranges) => self.split_outside(text, ranges)?,
        };
        if let Some(pre_tokenizer) = self.inner.get_pre_tokenizer() {
            pre_tokenizer.pre_tokenize(&mut pieces)?;
        }
        pieces.tokenize(|piece| self.inner.get_model().tokenize(piece.get()))?;
        pieces.into_encoding(None, 0, OffsetType::Byte)
    }

    pub fn decode(&self, ids: &[u32], skip_special: bool) -> Result<String> {
        self.inner.decode(ids, skip_special)
    }

    /// What of a request could become a control token; made when first asked for.
    pub fn needles(&self) -> Result<&Needles> {
        let made = self.needles.get_or_init(|| {
            let added = self.inner.get_added_vocabulary().get_added_tokens_decoder();
            Needles::new(added.values().map(|token| token.content.as_str())).map_err(|error| error.to_string())
        });
        made.as_ref().map_err(|error| error.as_str().into())
    }

    pub fn is_special(&self, id: u32) -> bool {
        let added = self.inner.get_added_vocabulary().get_added_tokens_decoder();
        added.get(&id).is_some_and(|token| token.special)
    }

    fn split_spaces(&self, text: &str) -> Result<PreTokenizedString> {
        let added = self.inner.get_added_vocabulary();
        let mut matches = control_matches(&added.extract_and_normalize(self.inner.get_normalizer(), text), 0);
        matches.retain(|m| self.spaces.contains(&m.2));
        self.split_at(text, &matches)
    }

    /// Where no match of the whole text touches a protected range, that is the answer: equal to the Python library.
    /// Otherwise each unprotected piece is matched by itself.
    fn split_outside(&self, text: &str, protected: &[(usize, usize)]) -> Result<PreTokenizedString> {
        let added = self.inner.get_added_vocabulary();
        let whole = added.extract_and_normalize(self.inner.get_normalizer(), text);
        if control_matches(&whole, 0).iter().all(|m| !touches(protected, m)) {
            return Ok(whole);
        }
        let mut matches = Vec::new();
        let mut begin = 0;
        for &(from, to) in protected.iter().chain(std::iter::once(&(text.len(), text.len()))) {
            let piece = added.extract_and_normalize(self.inner.get_normalizer(), &text[begin..from]);
            matches.extend(control_matches(&piece, begin));
            begin = to;
        }
        self.split_at(text, &matches)
    }

    /// The text cut at the given control tokens; what lies between is normalised and stays text.
    /// As in the crate, a token that matches normalised text is cut out after normalising, the others before.
    fn split_at(&self, text: &str, matches: &[ControlMatch]) -> Result<PreTokenizedString> {
        let added = self.inner.get_added_vocabulary().get_added_tokens_decoder();
        let normalized = |m: &&ControlMatch| added.get(&m.2).is_some_and(|token| token.normalized);
        let first: Vec<_> = matches.iter().filter(|m| !normalized(m)).copied().collect();
        let second: Vec<_> = matches.iter().filter(normalized).copied().collect();
        let mut pieces = PreTokenizedString::from(text);
        pieces.split(|_, piece| cut(piece, &first))?;
        pieces.split(|_, mut piece| {
            if let Some(normalizer) = self.inner.get_normalizer() {
                normalizer.normalize(&mut piece)?;
            }
            cut(piece, &second)
        })?;
        Ok(pieces)
    }
}

fn touches(protected: &[(usize, usize)], m: &ControlMatch) -> bool {
    let at = protected.partition_point(|range| range.1 <= m.0);
    protected.get(at).is_some_and(|range| range.0 < m.1)
}

fn control_matches(pieces: &PreTokenizedString, base: usize) -> Vec<ControlMatch> {
    let splits = pieces.get_splits(OffsetReferential::Original, OffsetType::Byte);
    let tokens = splits.into_iter().filter_map(|(_, (from, to), tokens)| {
        tokens.as_ref().and_then(|tokens| tokens.first()).map(|token| (base + from, base + to, token.id))
    });
    tokens.collect()
}

/// `piece` cut at those matches that lie within it.
fn cut(piece: NormalizedString, matches: &[ControlMatch]) -> Result<Vec<Split>> {
    use tokenizers::tokenizer::normalizer::Range;
    let (base, end) = piece.offsets_original();
    let mut splits = Vec::new();
    let mut begin = base;
    let slice = |from: usize, to: usize| {
        let part = piece.slice(Range::Original(from - base..to - base));
        part.ok_or_else(|| format!("no text at bytes {from} to {to}"))
    };
    for &(from, to, id) in matches.iter().filter(|m| m.0 >= base && m.1 <= end) {
        if begin < from {
            splits.push((slice(begin, from)?, None));
        }
        let part = slice(from, to)?;
        let token = Token::new(id, part.get().to_owned(), (0, part.len()));
        splits.push((part, Some(vec![token])));
        begin = to;
    }
    if begin == base {
        return Ok(vec![(piece, None)]);
    }
    if begin < end {
        splits.push((slice(begin, end)?, None));
    }
    Ok(splits)
}

/// What the post-processor adds around a text, found by giving it one token.
fn affixes(inner: &tokenizers::Tokenizer) -> Result<(Vec<u32>, Vec<u32>)> {
    let Some(processor) = inner.get_post_processor() else { return Ok((vec![], vec![])) };
    let probe = u32::MAX;
    let encoding = Encoding::new(
        vec![probe], vec![0], vec!["x".into()], vec![None], vec![(0, 1)], vec![0], vec![1], vec![], Default::default(),
    );
    let ids = processor.process(encoding, None, true)?.get_ids().to_vec();
    match ids.iter().position(|&id| id == probe) {
        Some(at) => Ok((ids[..at].to_vec(), ids[at + 1..].to_vec())),
        None => Ok((vec![], vec![])),
    }
}

/// (maps bytes to characters, spells bytes as <0xXX>)
fn decoder_kinds(decoder: &DecoderWrapper) -> (bool, bool) {
    match decoder {
        DecoderWrapper::ByteLevel(_) => (true, false),
        DecoderWrapper::ByteFallback(_) => (false, true),
        DecoderWrapper::Sequence(sequence) => {
            let kinds = sequence.get_decoders().iter().map(decoder_kinds);
            kinds.fold((false, false), |sum, kind| (sum.0 || kind.0, sum.1 || kind.1))
        }
        _ => (false, false),
    }
}

/// The text of tokens as the file's decoder joins them.
pub fn join(tok: &Tok, tokens: Vec<String>) -> Result<String> {
    match tok.inner.get_decoder() {
        Some(decoder) => decoder.decode(tokens),
        None => Ok(tokens.join(" ")),
    }
}
