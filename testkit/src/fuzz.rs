//! Parsers of bytes that others send, fed with inputs without end.
//!
//! A target is a test that calls [`fuzz`] with the inputs of its corpus, a file in the tree with one
//! input in hexadecimal digits on each line, and with its parser. The inputs are mutated; those that
//! the parser answers in a new way are mutated further. As a test a target runs [`SHORT`] inputs,
//! under `cargo xtask fuzz` 10^7 of them, optimised.
//!
//! An own loop rather than a coverage-guided engine: those need a nightly compiler, and the answers of
//! a parser that names what it refuses tell its branches apart as well.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Instant;

use fastrand::Rng;

/// The variable that holds the number of inputs.
pub const INPUTS: &str = "SELVEDGE_FUZZ_INPUTS";
/// The variable that holds the number that the mutations begin with.
pub const SEED: &str = "SELVEDGE_FUZZ_SEED";
/// Inputs of a test, unless [`INPUTS`] says otherwise.
pub const SHORT: u64 = 20_000;
/// Bytes of the longest input.
const LONGEST: usize = 1024;
/// Inputs that are kept because they were answered in a new way.
const MOST_KEPT: usize = 4096;

/// Feeds a parser, whose answer tells kinds of inputs apart.
///
/// # Panics
/// When the parser panics, after printing the input; and for a corpus that is none.
pub fn fuzz<A: Hash>(target: &str, corpus: &str, mut parse: impl FnMut(&[u8]) -> A) {
    let number = |name, default| {
        let value = std::env::var(name).ok();
        value.map_or(default, |text| {
            text.parse()
                .unwrap_or_else(|_| panic!("{name}={text} is no number"))
        })
    };
    let count: u64 = number(INPUTS, SHORT);
    let mut random = Rng::with_seed(number(SEED, 1));
    let mut kept: Vec<Vec<u8>> = corpus.lines().map(from_hex).collect();
    assert!(!kept.is_empty(), "the corpus of {target} is empty");
    let mut answers = HashSet::new();
    let mut feed = |input: &[u8]| {
        let mut hasher = DefaultHasher::new();
        match catch_unwind(AssertUnwindSafe(|| parse(input))) {
            Ok(answer) => answer.hash(&mut hasher),
            Err(panic) => {
                eprintln!("{target} panics at this input: {}", to_hex(input));
                resume_unwind(panic);
            }
        }
        answers.insert(hasher.finish())
    };
    for input in &kept {
        feed(input);
    }
    let begin = Instant::now();
    let mut input = Vec::with_capacity(LONGEST);
    for _ in 0..count {
        mutate(&kept, &mut input, &mut random);
        if feed(&input) && kept.len() < MOST_KEPT {
            kept.push(input.clone());
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    let answers = answers.len();
    println!("{target}: {count} inputs in {seconds:.1} s, {answers} different answers");
}

/// Makes an input of one or two that are kept.
fn mutate(kept: &[Vec<u8>], input: &mut Vec<u8>, random: &mut Rng) {
    input.clear();
    input.extend(&kept[random.usize(..kept.len())]);
    for _ in 0..=random.usize(..4) {
        let at = random.usize(..input.len() + 1);
        match random.usize(..8) {
            0 => input.truncate(at),
            1 => {
                let other = &kept[random.usize(..kept.len())];
                input.truncate(at);
                input.extend(&other[at.min(other.len())..]);
            }
            2 => input.insert(at, random.u8(..)),
            3 => {
                let copied = at..(at + 1 + random.usize(..24)).min(input.len());
                let copied = input[copied.start.min(copied.end)..copied.end].to_vec();
                input.splice(at..at, copied);
            }
            4 => drop(input.drain(at..(at + 1 + random.usize(..8)).min(input.len()).max(at))),
            5 => {
                let value =
                    NUMBERS[random.usize(..NUMBERS.len())].wrapping_add(random.usize(..5) as u64);
                let bytes = match random.usize(..2) {
                    0 => value.to_le_bytes(),
                    _ => value.to_be_bytes(),
                };
                let len = 1 << random.usize(..4);
                let from = if value.to_be_bytes() == bytes {
                    8 - len
                } else {
                    0
                };
                let room = input.len().saturating_sub(at).min(len);
                input[at..at + room].copy_from_slice(&bytes[from..from + room]);
            }
            6 if at < input.len() => input[at] = random.u8(..),
            _ if at < input.len() => input[at] ^= 1 << random.usize(..8),
            _ => input.push(random.u8(..)),
        }
    }
    input.truncate(LONGEST);
}

/// Numbers at which parsers do something else, give or take a few.
const NUMBERS: [u64; 9] = [
    0,
    1 << 7,
    1 << 8,
    1 << 15,
    1 << 16,
    1 << 31,
    1 << 32,
    1 << 63,
    u64::MAX - 2,
];

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(line: &str) -> Vec<u8> {
    let digits = line.as_bytes().chunks(2);
    let byte = |pair| {
        let pair = std::str::from_utf8(pair).ok();
        pair.and_then(|pair| u8::from_str_radix(pair, 16).ok())
    };
    let bytes = digits.map(byte).collect::<Option<_>>();
    bytes.unwrap_or_else(|| panic!("a line of a corpus is not hexadecimal: {line}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A parser with a defect behind two bytes and a length that must be right.
    #[test]
    #[should_panic(expected = "the defect")]
    fn a_defect_behind_a_few_right_bytes_is_found() {
        fuzz(
            "a parser with a defect",
            "0102030405",
            |input| match *input {
                [0x53, ref rest @ ..] => match *rest {
                    [len, ref rest @ ..] if usize::from(len) == rest.len() => match *rest {
                        [.., 0xff] => panic!("the defect"),
                        _ => 3,
                    },
                    _ => 2,
                },
                _ => 1,
            },
        );
    }

    #[test]
    fn an_input_is_written_as_it_is_read() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(from_hex(&to_hex(&bytes)), bytes);
    }
}
