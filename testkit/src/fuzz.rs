//! A fuzzer for parsers of bytes that peers send.
//!
//! A target is a test that calls [`fuzz`] with its corpus and its parser. The corpus is a file with
//! one input in hexadecimal digits on each line. The inputs are mutated. An input for which the
//! parser returns a new result is kept and mutated further. A test runs [`SHORT`] inputs; `cargo
//! xtask fuzz` runs 10^7 inputs in an optimized build.
//!
//! Coverage-guided engines need a nightly compiler. The results of a parser with descriptive errors
//! distinguish its branches as well.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Instant;

use fastrand::Rng;

/// The environment variable with the number of inputs.
pub const INPUTS: &str = "SELVEDGE_FUZZ_INPUTS";
/// The environment variable with the seed of the mutations.
pub const SEED: &str = "SELVEDGE_FUZZ_SEED";
/// The default number of inputs.
pub const SHORT: u64 = 20_000;
/// The maximum length of an input, in bytes.
const MAX_LEN: usize = 1024;
/// The maximum number of kept inputs.
const MAX_KEPT: usize = 4096;

/// Runs a parser with mutated inputs. Its results classify the inputs.
///
/// # Panics
/// When the parser panics, after printing the input; for an empty or invalid corpus.
pub fn fuzz<A: Hash>(target: &str, corpus: &str, mut parse: impl FnMut(&[u8]) -> A) {
    let read_number = |name, default| {
        let value = std::env::var(name).ok();
        value.map_or(default, |text| {
            text.parse()
                .unwrap_or_else(|_| panic!("{name}={text} is not a number"))
        })
    };
    let count: u64 = read_number(INPUTS, SHORT);
    let mut random = Rng::with_seed(read_number(SEED, 1));
    let mut kept: Vec<Vec<u8>> = corpus.lines().map(from_hex).collect();
    assert!(!kept.is_empty(), "the corpus of {target} is empty");
    let mut results = HashSet::new();
    let mut feed = |input: &[u8]| {
        let mut hasher = DefaultHasher::new();
        match catch_unwind(AssertUnwindSafe(|| parse(input))) {
            Ok(result) => result.hash(&mut hasher),
            Err(panic) => {
                eprintln!("{target} panics at this input: {}", to_hex(input));
                resume_unwind(panic);
            }
        }
        results.insert(hasher.finish())
    };
    for input in &kept {
        feed(input);
    }
    let begin = Instant::now();
    let mut input = Vec::with_capacity(MAX_LEN);
    for _ in 0..count {
        mutate(&kept, &mut input, &mut random);
        if feed(&input) && kept.len() < MAX_KEPT {
            kept.push(input.clone());
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    let results = results.len();
    println!("{target}: {count} inputs in {seconds:.1} s, {results} different results");
}

/// Replaces `input` by a mutation of one or two kept inputs.
fn mutate(kept: &[Vec<u8>], input: &mut Vec<u8>, random: &mut Rng) {
    input.clear();
    input.extend(&kept[random.usize(..kept.len())]);
    for _ in 0..=random.usize(..4) {
        let offset = random.usize(..input.len() + 1);
        match random.usize(..8) {
            0 => input.truncate(offset),
            1 => {
                let other = &kept[random.usize(..kept.len())];
                input.truncate(offset);
                input.extend(&other[offset.min(other.len())..]);
            }
            2 => input.insert(offset, random.u8(..)),
            3 => {
                let copied = offset..(offset + 1 + random.usize(..24)).min(input.len());
                let copied = input[copied.start.min(copied.end)..copied.end].to_vec();
                input.splice(offset..offset, copied);
            }
            4 => drop(
                input.drain(
                    offset
                        ..(offset + 1 + random.usize(..8))
                            .min(input.len())
                            .max(offset),
                ),
            ),
            5 => {
                let value =
                    NUMBERS[random.usize(..NUMBERS.len())].wrapping_add(random.usize(..5) as u64);
                let bytes = match random.usize(..2) {
                    0 => value.to_le_bytes(),
                    _ => value.to_be_bytes(),
                };
                let len = 1 << random.usize(..4);
                let first = if value.to_be_bytes() == bytes {
                    8 - len
                } else {
                    0
                };
                let room = input.len().saturating_sub(offset).min(len);
                input[offset..offset + room].copy_from_slice(&bytes[first..first + room]);
            }
            6 if offset < input.len() => input[offset] = random.u8(..),
            _ if offset < input.len() => input[offset] ^= 1 << random.usize(..8),
            _ => input.push(random.u8(..)),
        }
    }
    input.truncate(MAX_LEN);
}

/// Boundary values of parsers. A mutation adds a number below 5.
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

    /// A parser with a defect that needs a certain first byte, a matching length and a certain last
    /// byte.
    #[test]
    #[should_panic(expected = "the defect")]
    fn a_defect_that_needs_specific_bytes_is_found() {
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
    fn hexadecimal_digits_are_read_as_they_are_written() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(from_hex(&to_hex(&bytes)), bytes);
    }
}
