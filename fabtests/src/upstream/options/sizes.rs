//! Sizes of messages, and how often each is sent, where the command line leaves it open.

use anyhow::{Context as _, ensure};

/// `-S`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Sizes {
    /// Not there: a few sizes, or what the program likes best.
    #[default]
    Few,
    /// `all`.
    All,
    /// A number, `r:start,step,end` or `l:a,b,c`.
    These(Vec<usize>),
}

/// The sizes of a run without `-S`.
const FEW: [usize; 6] = [64, 256, 1 << 10, 4 << 10, 64 << 10, 1 << 20];
/// The largest size of `-S all`.
const LARGEST: usize = 8 << 20;

impl Sizes {
    /// Reads what stands behind `-S`.
    ///
    /// # Errors
    /// The part that is no size.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let number = |text: &str| -> anyhow::Result<usize> {
            let size = text.trim().parse();
            size.with_context(|| format!("-S: {text:?} is no size in bytes"))
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
                "-S {text:?}: too many sizes"
            );
            return Ok(Self::These((start..=end).step_by(step).collect()));
        }
        let list = numbers(text.strip_prefix("l:").unwrap_or(text))?;
        ensure!(
            list.len() == 1 || text.starts_with("l:"),
            "-S {text:?}: a list is l:a,b,c"
        );
        Ok(Self::These(list))
    }

    /// The sizes, up to the largest message of the provider.
    pub fn list(&self, limit: usize) -> Vec<usize> {
        let mut list = match self {
            Self::Few => FEW.to_vec(),
            Self::All => all(),
            Self::These(list) => list.clone(),
        };
        if !matches!(self, Self::These(_)) {
            list.retain(|&size| size <= limit);
        }
        list
    }

    /// The only one, if there is but one.
    pub fn one(&self) -> Option<usize> {
        match self {
            Self::These(list) if list.len() == 1 => Some(list[0]),
            _ => None,
        }
    }
}

/// 1 to 3, and then the powers of two, each with the size in the middle to the next one.
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

/// How often a message of a size is sent without `-I`.
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
    fn sizes_are_read_in_every_form() {
        let these = |text| Sizes::parse(text).unwrap().list(usize::MAX);
        assert_eq!(these("7"), [7]);
        assert_eq!(these("l:7,1,4096"), [7, 1, 4096]);
        assert_eq!(these("r:1,4,10"), [1, 5, 9]);
        assert_eq!(these("all").len(), 46);
        assert_eq!(Sizes::Few.list(5000), [64, 256, 1024, 4096]);
        for bad in [
            "", "x", "1,2", "r:1,2", "r:1,0,5", "r:5,1,1", "-1", "l:1,,2",
        ] {
            assert!(Sizes::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn larger_messages_are_sent_less_often() {
        let counts = [1, 0xffff, 0x1_0000, 0xf_ffff, 0x10_0000].map(iterations);
        assert_eq!(counts, [10_000, 10_000, 1000, 1000, 100]);
    }
}
