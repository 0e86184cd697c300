//! Tracked values: strings of a request are rendered with one private character in the place of each added token and of
//! each character that could begin or end one, so that nothing in them, nor anything a template puts together from them,
//! can become a control token. Afterwards the characters become the text again, and their ranges are known.
use crate::request::for_each_string;
use crate::result::Result;
use aho_corasick::{AhoCorasick, MatchKind};
use serde_json::Value as Json;
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hasher};

/// What of a text could be part of a control token.
pub struct Needles {
    tokens: AhoCorasick,
    edges: HashSet<char>,
}

impl Needles {
    pub fn new<'a>(added_tokens: impl Iterator<Item = &'a str>) -> Result<Needles> {
        // Templates trim and split at white space, so it stays.
        let controls: Vec<&str> = added_tokens.filter(|text| !is_space(text)).collect();
        let edges = controls.iter().flat_map(|text| edge(text.chars()).chain(edge(text.chars().rev()))).collect();
        let tokens = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(&controls)?;
        Ok(Needles { tokens, edges })
    }
}

/// White space, or what SentencePiece writes for it.
pub fn is_space(text: &str) -> bool {
    text.chars().all(|c| c.is_whitespace() || c == '\u{2581}')
}

/// The punctuation at one end of a control token. `/`, `_` and `-` stay, for templates look for words such as /no_think.
fn edge(chars: impl Iterator<Item = char>) -> impl Iterator<Item = char> {
    chars.take_while(|c| !c.is_alphanumeric() && !c.is_whitespace() && !matches!(c, '/' | '_' | '-'))
}

/// The markers of one request.
pub struct Tracker<'a> {
    needles: &'a Needles,
    taken: HashSet<char>, // private characters of the request itself
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    marker_of: HashMap<String, char>,
    original_of: HashMap<char, String>,
    next: u32,
}

const PRIVATE_BEGIN: u32 = 0xF0000; // planes 15 and 16
const PRIVATE_SIZE: u32 = 0x20000;

fn is_private(c: char) -> bool {
    c as u32 >= PRIVATE_BEGIN
}

impl<'a> Tracker<'a> {
    pub fn new(needles: &'a Needles, fields: &serde_json::Map<String, Json>) -> Result<Tracker<'a>> {
        let mut taken = HashSet::new();
        let mut visit = |text: &str| {
            taken.extend(text.chars().filter(|c| is_private(*c)));
            Ok(())
        };
        for (key, value) in fields {
            visit(key)?;
            for_each_string(value, &mut visit)?;
        }
        if taken.len() > PRIVATE_SIZE as usize / 2 {
            return Err("the request holds more private characters (planes 15 and 16) than can be kept apart".into());
        }
        // Random, so that nobody can write a request or a template for a marker.
        let next = std::collections::hash_map::RandomState::new().build_hasher().finish() as u32 % PRIVATE_SIZE;
        Ok(Tracker { needles, taken, state: RefCell::new(State { next, ..Default::default() }) })
    }

    pub fn mark(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut begin = 0;
        for found in self.needles.tokens.find_iter(text) {
            self.mark_edges(&text[begin..found.start()], &mut out);
            out.push(self.marker(&text[found.range()]));
            begin = found.end();
        }
        self.mark_edges(&text[begin..], &mut out);
        out
    }

    fn mark_edges(&self, text: &str, out: &mut String) {
        for c in text.chars() {
            out.push(if self.needles.edges.contains(&c) { self.marker(c.encode_utf8(&mut [0; 4])) } else { c });
        }
    }

    fn marker(&self, original: &str) -> char {
        let mut state = self.state.borrow_mut();
        if let Some(&marker) = state.marker_of.get(original) {
            return marker;
        }
        loop {
            let candidate = char::from_u32(PRIVATE_BEGIN + state.next);
            state.next = (state.next + 1) % PRIVATE_SIZE;
            let Some(marker) = candidate.filter(|c| !self.taken.contains(c)) else { continue };
            state.marker_of.insert(original.to_owned(), marker);
            state.original_of.insert(marker, original.to_owned());
            return marker;
        }
    }

    /// The text itself, and the byte ranges of it that were marked.
    pub fn restore(&self, rendered: &str) -> (String, Vec<(usize, usize)>) {
        let state = self.state.borrow();
        let mut text = String::with_capacity(rendered.len());
        let mut ranges: Vec<(usize, usize)> = Vec::new();
        for c in rendered.chars() {
            let Some(original) = state.original_of.get(&c) else {
                text.push(c);
                continue;
            };
            let begin = text.len();
            text.push_str(original);
            match ranges.last_mut() {
                Some(last) if last.1 == begin => last.1 = text.len(),
                _ => ranges.push((begin, text.len())),
            }
        }
        (text, ranges)
    }
}
