//! Endpoints that connect through a directory: names, leftover files, removed files, and
//! directories that cannot be trusted.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use selvedge::info::EpType;
use selvedge::{Errno, Error, FiAddr};
use selvedge_testkit::skip::{Need, skip};

use crate::connect::unique;
use crate::endpoint::{Kind, NumberedEndpoint, info};
use crate::peer_failure::exchange_messages;
use crate::process::{PeerProcess, Watchdog, alone};

/// A directory of a test. Dropping the value removes the directory.
pub(crate) struct TestDir(PathBuf);

impl TestDir {
    pub(crate) fn new(label: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("selvedge-{}{number}", unique(label));
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }

    fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    }

    pub(crate) fn peer_process(&self, name: &str) -> PeerProcess {
        let mut peer_process = PeerProcess::start();
        peer_process.request(&format!("open {name} FI_SHM_DIR={}", self.path()));
        peer_process
    }

    pub(crate) fn side(&self) -> NumberedEndpoint {
        open(self.path(), None).unwrap()
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn open(path: &str, name: Option<&str>) -> Result<NumberedEndpoint, Error> {
    NumberedEndpoint::open(name, &info(EpType::Rdm, &[("FI_SHM_DIR", path)]))
}

#[test]
fn endpoints_connect_through_a_directory_and_leave_no_files() {
    let _watchdog = Watchdog::new();
    let dir = TestDir::new("connect");
    let mut side = dir.side();
    let name = unique("there");
    let mut peer_process = dir.peer_process(&name);
    let (peer_addr, side_addr) = (
        side.insert(&name),
        peer_process.request(&format!("insert {}", side.name())),
    );
    exchange_messages(&mut side, &mut peer_process, peer_addr, &side_addr);
    assert_eq!(dir.files().len(), 4);
    peer_process.request("close");
    assert_eq!(dir.files().len(), 2);
    drop(side);
    assert_eq!(dir.files(), [""; 0]);
}

#[test]
fn an_absent_directory_is_created() {
    let dir = TestDir::new("made");
    let path = format!("{}/inner", dir.path());
    drop(open(&path, None).unwrap());
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o700
    );
    let error = open(&format!("{}/no/where", dir.path()), None)
        .err()
        .unwrap();
    assert_eq!(error.errno(), Errno::NoEnt);
    assert!(error.to_string().contains("/no/where"), "{error}");
}

#[test]
fn names_and_directories_of_any_length_are_found() {
    let _watchdog = Watchdog::new();
    let dir = TestDir::new("long");
    let deep = format!("{}/{}", dir.path(), "d".repeat(200));
    for path in [dir.path(), &deep] {
        for name in ["..", ".", "a/b", "../x", &"n".repeat(88), &"/".repeat(88)] {
            let mut named = open(path, Some(name)).unwrap();
            let mut side = open(path, None).unwrap();
            let peer_addr = side.insert(name);
            side.send(Kind::Tagged, peer_addr, 8, 1).unwrap();
            named.recv(Kind::Tagged, FiAddr::UNSPEC, 8, 1).unwrap();
            named.next_with(&mut [&mut side]).ok();
        }
    }
}

#[test]
fn files_of_killed_endpoints_are_taken_over_and_those_of_open_ones_are_not() {
    let _watchdog = Watchdog::new();
    let dir = TestDir::new("takeover");
    let mut side = dir.side();
    let name = unique("again");
    let peer_addr = side.insert(&name);
    for _ in 0..5 {
        let mut peer_process = dir.peer_process(&name);
        assert_eq!(
            open(dir.path(), Some(&name)).err().unwrap().errno(),
            Errno::AddrInUse
        );
        let side_addr = peer_process.request(&format!("insert {}", side.name()));
        exchange_messages(&mut side, &mut peer_process, peer_addr, &side_addr);
        peer_process.kill();
        assert_eq!(dir.files().len(), 4);
        side.until(|side| side.send(Kind::Inject, peer_addr, 1, 0) == Err(Errno::NotConn));
        side.forget(0);
    }
    // The same holds within a process.
    let side_name = side.name();
    assert_eq!(
        open(dir.path(), Some(&side_name)).err().unwrap().errno(),
        Errno::AddrInUse
    );
    // The next endpoint that is opened removes the files of those that were killed.
    drop(dir.side());
    assert_eq!(dir.files().len(), 2);
}

#[test]
fn one_of_many_processes_takes_a_killed_endpoint_s_name() {
    let _watchdog = Watchdog::new();
    let dir = TestDir::new("race");
    let mut openers: Vec<_> = (0..6).map(|_| PeerProcess::start()).collect();
    for round in 0..20 {
        let name = unique("prize");
        dir.peer_process(&name).kill();
        let request = format!("try-open {name} FI_SHM_DIR={}", dir.path());
        openers
            .iter_mut()
            .for_each(|opener| opener.send_request(&request));
        let responses: Vec<_> = openers.iter_mut().map(PeerProcess::response).collect();
        let winners = responses
            .iter()
            .filter(|response| *response == "ok")
            .count();
        assert_eq!(winners, 1, "round {round}: {responses:?}");
        assert!(
            responses
                .iter()
                .all(|response| response == "ok" || response == "AddrInUse"),
            "{responses:?}"
        );
        openers.iter_mut().for_each(|opener| {
            opener.request("close");
        });
    }
    assert_eq!(dir.files(), [""; 0]);
}

#[test]
fn an_endpoint_keeps_its_connections_and_restores_files_that_are_removed() {
    let _watchdog = Watchdog::new();
    let dir = TestDir::new("cleaner");
    let mut side = dir.side();
    let name = unique("cleaned");
    let mut peer_process = dir.peer_process(&name);
    let (peer_addr, side_addr) = (
        side.insert(&name),
        peer_process.request(&format!("insert {}", side.name())),
    );
    exchange_messages(&mut side, &mut peer_process, peer_addr, &side_addr);
    let clean: [fn(&Path); 3] = [
        |path| remove_files(path, ".sock"),
        |path| remove_files(path, ""),
        |path| fs::remove_dir_all(path).unwrap(),
    ];
    for (number, clean) in (0..).zip(clean) {
        clean(&dir.0);
        exchange_messages(&mut side, &mut peer_process, peer_addr, &side_addr);
        // Occasional progress is enough.
        let file = dir.0.join(format!("{name}.sock"));
        peer_process.request("drive on");
        side.until(|_| file.exists());
        peer_process.request("drive off");
        let mut late = dir.side();
        let to_peer = late.insert(&name);
        peer_process.request(&format!("recv Tagged 8 {number}"));
        peer_process.request("drive on");
        late.send(Kind::Delivered, to_peer, 8, number).unwrap();
        late.next().ok();
        peer_process.request("drive off");
        assert_eq!(
            peer_process.request("next"),
            format!("done {number} 8 good")
        );
        assert_eq!(
            open(dir.path(), Some(&name)).err().unwrap().errno(),
            Errno::AddrInUse
        );
    }
}

/// Removes the files of a directory whose names have this ending.
fn remove_files(path: &Path, ending: &str) {
    for entry in fs::read_dir(path).unwrap() {
        let path = entry.unwrap().path();
        if path.to_str().unwrap().ends_with(ending) {
            fs::remove_file(path).unwrap();
        }
    }
}

#[test]
fn directories_that_cannot_be_trusted_are_refused_by_name() {
    alone(|| {
        let dir = TestDir::new("bad");
        let set_mode =
            |mode| fs::set_permissions(&dir.0, fs::Permissions::from_mode(mode)).unwrap();
        let errno = || {
            open(dir.path(), None).err().map(|error| {
                assert!(error.to_string().contains(dir.path()), "{error}");
                error.errno()
            })
        };
        for (bits, expected) in [
            (0o777, Some(Errno::Acces)),
            (0o770, Some(Errno::Acces)),
            (0o1777, None),
            (0o755, None),
            (0o700, None),
        ] {
            set_mode(bits);
            assert_eq!(errno(), expected, "{bits:o}");
        }
        // Connecting checks the directory as well.
        let mut side = dir.side();
        let peer_addr = side.insert("absent");
        set_mode(0o777);
        assert_eq!(side.send(Kind::Tagged, peer_addr, 8, 1), Err(Errno::Acces));
        drop(side);
        set_mode(0o700);
        let file = format!("{}/file", dir.path());
        fs::write(&file, "").unwrap();
        let error = open(&file, None).err().unwrap().to_string();
        assert!(error.contains("ENOTDIR"), "{error}");
        fs::remove_file(file).unwrap();
        // A link under the name of a lock file is not followed.
        std::os::unix::fs::symlink("/etc/passwd", dir.0.join("bait.lock")).unwrap();
        let error = open(dir.path(), Some("bait")).err().unwrap();
        assert!(error.to_string().contains("bait.lock"), "{error}");
        if chown(&dir.0, Some(12345), None).is_err() {
            return skip(Need::Rights, "this user cannot give a directory away");
        }
        let error = open(dir.path(), None).err().unwrap();
        assert_eq!(error.errno(), Errno::Acces);
        assert!(error.to_string().contains("12345"), "{error}");
    });
}

#[test]
fn endpoints_of_different_directories_do_not_connect() {
    let _watchdog = Watchdog::new();
    let (one, two) = (TestDir::new("one"), TestDir::new("two"));
    let name = unique("elsewhere");
    let _endpoints = [Some(one.path()), None].map(|path| match path {
        Some(path) => open(path, Some(&name)).unwrap(),
        None => NumberedEndpoint::named(&name),
    });
    let params = [("FI_SHM_DIR", two.path()), ("FI_SHM_PEER_TIMEOUT", "50ms")];
    let mut side = NumberedEndpoint::with_params(None, &params);
    let peer_addr = side.insert(&name);
    side.send(Kind::Tagged, peer_addr, 8, 1).unwrap();
    assert_eq!(side.next().errno(), Errno::ConnRefused);
}
