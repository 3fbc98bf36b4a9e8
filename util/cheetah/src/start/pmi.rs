//! PMI-1, the text protocol of `mpiexec`: each process puts a value under a key, all enter a
//! barrier, and then each process gets the values of the others.

#![expect(unsafe_code, reason = "a descriptor inherited from a process manager")]

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{BorrowedFd, RawFd};

use super::rendezvous::Identity;
use crate::{Error, Result};

/// Exchanges address lines through the process manager connected to `fd`.
///
/// # Errors
/// An unexpected response of the process manager.
pub(super) fn exchange(fd: RawFd, identity: &Identity<'_>) -> Result<Vec<String>> {
    let mut manager = Manager::open(fd)?;
    manager.request("init pmi_version=1 pmi_subversion=1", "response_to_init")?;
    let maxes = manager.request("get_maxes", "maxes")?;
    let value_max = number(&maxes, "vallen_max").unwrap_or(256);
    let space = manager.request("get_my_kvsname", "my_kvsname")?;
    let space = field(&space, "kvsname").unwrap_or_default().to_owned();
    manager.put(&space, identity, value_max.saturating_sub(1).max(16))?;
    manager.request("barrier_in", "barrier_out")?;
    let lines: Result<Vec<_>> = (0..identity.size)
        .map(|rank| manager.get(&space, rank))
        .collect();
    manager.request("finalize", "finalize_ack")?;
    lines
}

struct Manager {
    reader: BufReader<File>,
    writer: File,
}

impl Manager {
    fn open(fd: RawFd) -> Result<Self> {
        let io_error = |error: std::io::Error| Error::io(&format!("PMI_FD={fd}"), &error);
        if fd < 0 {
            return Err(Error::start(format!("PMI_FD={fd}")));
        }
        // SAFETY: the descriptor is borrowed only to duplicate it; duplicating an invalid one
        // fails.
        let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
        let reader = File::from(borrowed.try_clone_to_owned().map_err(io_error)?);
        let writer = reader.try_clone().map_err(io_error)?;
        Ok(Self {
            reader: BufReader::new(reader),
            writer,
        })
    }

    /// Sends a command and reads the response.
    fn request(&mut self, command: &str, expected: &str) -> Result<String> {
        let io_error = |error: std::io::Error| Error::io("the process manager", &error);
        let line = format!("cmd={command}\n");
        self.writer.write_all(line.as_bytes()).map_err(io_error)?;
        let mut response = String::new();
        self.reader.read_line(&mut response).map_err(io_error)?;
        let response = response.trim_end().to_owned();
        let is_expected = field(&response, "cmd") == Some(expected)
            && field(&response, "rc").is_none_or(|code| code == "0");
        if is_expected {
            Ok(response)
        } else {
            Err(Error::start(format!(
                "the process manager responded to {command:?} with {response:?}"
            )))
        }
    }

    /// Puts this context's line, in chunks within the length limit.
    fn put(&mut self, space: &str, identity: &Identity<'_>, value_max: usize) -> Result {
        let chunks: Vec<_> = identity.line.as_bytes().chunks(value_max).collect();
        for (number, chunk) in chunks.iter().enumerate() {
            let value = String::from_utf8_lossy(chunk).replace('=', "%");
            let key = format!("cheetah-{}-{number}", identity.rank);
            let command = format!("put kvsname={space} key={key} value={value}");
            self.request(&command, "put_result")?;
        }
        let count = format!(
            "put kvsname={space} key=cheetah-{} value={}",
            identity.rank,
            chunks.len()
        );
        self.request(&count, "put_result").map(|_| ())
    }

    fn get(&mut self, space: &str, rank: usize) -> Result<String> {
        let count = self.value(space, &format!("cheetah-{rank}"))?;
        let count: usize = count.parse().unwrap_or(0);
        let chunks: Result<Vec<_>> = (0..count)
            .map(|number| self.value(space, &format!("cheetah-{rank}-{number}")))
            .collect();
        Ok(chunks?.concat().replace('%', "="))
    }

    fn value(&mut self, space: &str, key: &str) -> Result<String> {
        let response = self.request(&format!("get kvsname={space} key={key}"), "get_result")?;
        Ok(field(&response, "value").unwrap_or_default().to_owned())
    }
}

fn field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let mut words = line.split(' ').filter_map(|word| word.split_once('='));
    words.find(|word| word.0 == name).map(|word| word.1)
}

fn number(line: &str, name: &str) -> Option<usize> {
    field(line, name)?.parse().ok()
}
