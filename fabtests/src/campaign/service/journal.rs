//! `Journal`: a file in which the processes of the campaign note each step of each request.
//!
//! A process notes a step with one write to the end of the file. The kernel keeps the note when the
//! process is killed, and notes of several processes do not mix.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

/// The length of a note in the file: three words and an unused one. No note crosses the bounds of a
/// page, so that the kernel writes and reads notes as a whole.
const LEN: usize = 32;

/// A step of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The client is about to send the request.
    Sent,
    /// The server with this number has taken the request, and is about to respond.
    Handled(u64),
    /// The client has the right response, of the server with this number.
    Responded(u64),
    /// The client has an error in place of a response.
    Failed,
}

/// A step and its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) step: Step,
    pub(super) request: Request,
}

/// The number of a request, which no other request of a campaign has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Request(pub(super) u64);

impl Request {
    /// The request of a client with this number.
    pub(super) const fn new(client: u32, number: u32) -> Self {
        Self((client as u64) << 32 | number as u64)
    }

    /// The number of the client.
    pub(super) const fn client(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

impl Note {
    fn encode(self) -> [u8; LEN] {
        let (step, server) = match self.step {
            Step::Sent => (1, 0),
            Step::Handled(server) => (2, server),
            Step::Responded(server) => (3, server),
            Step::Failed => (4, 0),
        };
        let mut bytes = [0; LEN];
        let (chunks, _) = bytes.as_chunks_mut::<8>();
        for (chunk, word) in chunks.iter_mut().zip([step, self.request.0, server, 0]) {
            *chunk = word.to_le_bytes();
        }
        bytes
    }

    fn parse(bytes: &[u8]) -> anyhow::Result<Self> {
        let (words, _) = bytes.as_chunks::<8>();
        let words: Vec<_> = words.iter().copied().map(u64::from_le_bytes).collect();
        let &[step, request, server, _] = &words[..] else {
            bail!("a note of {} bytes", bytes.len());
        };
        let step = match step {
            1 => Step::Sent,
            2 => Step::Handled(server),
            3 => Step::Responded(server),
            4 => Step::Failed,
            other => bail!("a note of the unknown step {other}"),
        };
        let request = Request(request);
        Ok(Self { step, request })
    }
}

/// The end of a journal to which a process writes.
#[derive(Debug)]
pub(super) struct Writer(File);

impl Writer {
    /// Opens the journal of the campaign.
    ///
    /// # Errors
    /// Those of the system.
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
        let file = OpenOptions::new().append(true).open(path);
        Ok(Self(file.context("cannot open the journal")?))
    }

    /// Notes a step.
    ///
    /// # Errors
    /// Those of the system.
    pub(super) fn write(&self, step: Step, request: Request) -> anyhow::Result<()> {
        let note = Note { step, request };
        (&self.0)
            .write_all(&note.encode())
            .context("cannot write to the journal")
    }
}

/// The journal as the campaign reads it. Dropping it removes the file.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    file: File,
    notes: Vec<Note>,
}

impl Journal {
    /// Makes an empty journal.
    ///
    /// # Errors
    /// Those of the system.
    pub(super) fn create(name: &str) -> anyhow::Result<Self> {
        let path = std::env::temp_dir().join(format!("fabtests-{name}"));
        let mut options = OpenOptions::new();
        let file = options.read(true).append(true).create_new(true).open(&path);
        Ok(Self {
            file: file.with_context(|| format!("cannot create {}", path.display()))?,
            path,
            notes: Vec::new(),
        })
    }

    /// The path of the file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the notes that were written since the last call. Returns all notes so far.
    ///
    /// # Errors
    /// Those of the system; an error for a note that no process writes.
    pub(super) fn read(&mut self) -> anyhow::Result<&[Note]> {
        let mut bytes = Vec::new();
        self.file.read_to_end(&mut bytes)?;
        for note in bytes.chunks(LEN) {
            self.notes.push(Note::parse(note)?);
        }
        Ok(&self.notes)
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        // The system empties its folder for temporary files later.
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_read_as_they_were_written() {
        let name = format!("journal-test-{}", std::process::id());
        let mut journal = Journal::create(&name).unwrap();
        let writer = Writer::open(journal.path()).unwrap();
        let request = Request::new(7, 9);
        let steps = [
            Step::Sent,
            Step::Handled(3),
            Step::Responded(3),
            Step::Failed,
        ];
        for step in steps {
            writer.write(step, request).unwrap();
        }
        let notes = journal.read().unwrap();
        assert_eq!(notes, steps.map(|step| Note { step, request }));
        assert_eq!(request.client(), 7);
    }
}
