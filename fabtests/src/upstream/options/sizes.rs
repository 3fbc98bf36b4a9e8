//! The sizes of messages, and the default number of messages of each size.

use anyhow::{Context as _, ensure};

/// The value of `-S`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Sizes {
    /// `-S` is not given: the program uses a few sizes, or its own default.
    #[default]
    Few,
    /// `all`.
    All,
    /// A single number, `r:start,step,end` or `l:a,b,c`.
    List(Vec<usize>),
}

/// The sizes of a run without `-S`.
const FEW: [usize; 6] = [64, 256, 1 << 10, 4 << 10, 64 << 10, 1 << 20];
/// The largest size of `-S all`.
const LARGEST: usize = 8 << 20;

impl Sizes {
    /// Parses the value of `-S`.
    ///
    /// # Errors
    /// When a part of `text` is not a size; the error names that part.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let number = |text: &str| -> anyhow::Result<usize> {
            let size = text.trim().parse();
            size.with_context(|| format!("-S: {text:?} is not a number of bytes"))
        };
        let numbers = |text: &str| text.split(',').map(number).collect::<Result<Vec<_>, _>>();
        if text == "all" {
            return Ok(Self::All);
        }
        if let Some(range) = text.strip_prefix("r:") {
            let [start, step, end] = numbers(range)?[..] else {
                anyhow::bail!("-S {text:?}: a range is r:start,step,end");
            };
            ensure!(step > 0 && start <= end, "-S {text:?}: the range is empty");
            ensure!(
                (end - start) / step < 1 << 20,
                "-S {text:?}: the range has more than 1048576 sizes"
            );
            return Ok(Self::List((start..=end).step_by(step).collect()));
        }
        let list = numbers(text.strip_prefix("l:").unwrap_or(text))?;
        ensure!(
            list.len() == 1 || text.starts_with("l:"),
            "-S {text:?}: a list is l:a,b,c"
        );
        Ok(Self::List(list))
    }

    /// The sizes to run. Sizes above the provider's largest message, `max_msg_size`, are left out
    /// unless `-S` lists them.
    pub fn list(&self, max_msg_size: usize) -> Vec<usize> {
        let mut list = match self {
            Self::Few => FEW.to_vec(),
            Self::All => all(),
            Self::List(list) => list.clone(),
        };
        if !matches!(self, Self::List(_)) {
            list.retain(|&size| size <= max_msg_size);
        }
        list
    }

    /// The size, if `-S` names exactly one.
    pub fn one(&self) -> Option<usize> {
        match self {
            Self::List(list) if list.len() == 1 => Some(list[0]),
            _ => None,
        }
    }
}

/// The sizes of `-S all`: 1 to 3, then the powers of two from 4 to [`LARGEST`], with one more size
/// in the middle between each two.
fn all() -> Vec<usize> {
    let powers = (2..).map(|power| 1_usize << power);
    let powers = powers.take_while(|&size| size < LARGEST);
    let pairs = powers.flat_map(|size| [size, size + size / 2]);
    [1, 2, 3]
        .into_iter()
        .chain(pairs)
        .chain([LARGEST])
        .collect()
}

/// The number of messages of this size in a run without `-I`.
pub fn iterations(size: usize) -> usize {
    match size {
        0x10_0000.. => 100,
        0x1_0000.. => 1000,
        _ => 10_000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_sizes_parses() {
        let list_of = |text| Sizes::parse(text).unwrap().list(usize::MAX);
        assert_eq!(list_of("7"), [7]);
        assert_eq!(list_of("l:7,1,4096"), [7, 1, 4096]);
        assert_eq!(list_of("r:1,4,10"), [1, 5, 9]);
        assert_eq!(list_of("all").len(), 46);
        assert_eq!(Sizes::Few.list(5000), [64, 256, 1024, 4096]);
        for bad in [
            "", "x", "1,2", "r:1,2", "r:1,0,5", "r:5,1,1", "-1", "l:1,,2",
        ] {
            assert!(Sizes::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn larger_messages_have_fewer_iterations() {
        let counts = [1, 0xffff, 0x1_0000, 0xf_ffff, 0x10_0000].map(iterations);
        assert_eq!(counts, [10_000, 10_000, 1000, 1000, 100]);
    }
}
