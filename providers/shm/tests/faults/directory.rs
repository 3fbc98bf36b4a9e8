//! Endpoints that meet in a directory: names, leftovers, cleaners, and directories that cannot be
//! trusted.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use selvedge::info::EpType;
use selvedge::{Errno, Error, FiAddr};
use selvedge_testkit::skip::{Need, skip};

use crate::contact::unique;
use crate::death::get_acquainted;
use crate::process::{Puppet, Watchdog, alone};
use crate::side::{Kind, Side, info};

/// A directory of a test, gone at its end.
pub(crate) struct Place(PathBuf);

impl Place {
    pub(crate) fn new(what: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("selvedge-{}{number}", unique(what));
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

    pub(crate) fn puppet(&self, name: &str) -> Puppet {
        let mut puppet = Puppet::start();
        puppet.ask(&format!("open {name} FI_SHM_DIR={}", self.path()));
        puppet
    }

    pub(crate) fn side(&self) -> Side {
        open(self.path(), None).unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn open(path: &str, name: Option<&str>) -> Result<Side, Error> {
    Side::open(name, &info(EpType::Rdm, &[("FI_SHM_DIR", path)]))
}

#[test]
fn endpoints_meet_in_a_directory_and_leave_nothing_there() {
    let _watchdog = Watchdog::new();
    let place = Place::new("meet");
    let mut side = place.side();
    let name = unique("there");
    let mut puppet = place.puppet(&name);
    let (them, us) = (
        side.insert(&name),
        puppet.ask(&format!("insert {}", side.name())),
    );
    get_acquainted(&mut side, &mut puppet, them, &us);
    assert_eq!(place.files().len(), 4);
    puppet.ask("close");
    assert_eq!(place.files().len(), 2);
    drop(side);
    assert_eq!(place.files(), [""; 0]);
}

#[test]
fn a_directory_is_made_where_there_is_none() {
    let place = Place::new("made");
    let path = format!("{}/inner", place.path());
    drop(open(&path, None).unwrap());
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o700
    );
    let error = open(&format!("{}/no/where", place.path()), None)
        .err()
        .unwrap();
    assert_eq!(error.errno(), Errno::NoEnt);
    assert!(error.to_string().contains("/no/where"), "{error}");
}

#[test]
fn names_and_directories_of_any_length_are_found() {
    let _watchdog = Watchdog::new();
    let place = Place::new("long");
    let deep = format!("{}/{}", place.path(), "d".repeat(200));
    for path in [place.path(), &deep] {
        for name in ["..", ".", "a/b", "../x", &"n".repeat(88), &"/".repeat(88)] {
            let mut named = open(path, Some(name)).unwrap();
            let mut side = open(path, None).unwrap();
            let them = side.insert(name);
            side.send(Kind::Tagged, them, 8, 1).unwrap();
            named.recv(Kind::Tagged, FiAddr::UNSPEC, 8, 1).unwrap();
            named.next_with(&mut [&mut side]).ok();
        }
    }
}

#[test]
fn the_files_of_the_living_are_not_taken_and_those_of_the_dead_are() {
    let _watchdog = Watchdog::new();
    let place = Place::new("takeover");
    let mut side = place.side();
    let name = unique("again");
    let them = side.insert(&name);
    for _ in 0..5 {
        let mut puppet = place.puppet(&name);
        assert_eq!(
            open(place.path(), Some(&name)).err().unwrap().errno(),
            Errno::AddrInUse
        );
        let us = puppet.ask(&format!("insert {}", side.name()));
        get_acquainted(&mut side, &mut puppet, them, &us);
        puppet.kill();
        assert_eq!(place.files().len(), 4);
        side.until(|side| side.send(Kind::Inject, them, 1, 0) == Err(Errno::NotConn));
        side.forget(0);
    }
    // Within a process, too.
    let own = side.name();
    assert_eq!(
        open(place.path(), Some(&own)).err().unwrap().errno(),
        Errno::AddrInUse
    );
    // Whoever opens next sweeps up after those that were killed.
    drop(place.side());
    assert_eq!(place.files().len(), 2);
}

#[test]
fn of_many_that_want_a_dead_endpoint_s_name_one_has_it() {
    let _watchdog = Watchdog::new();
    let place = Place::new("race");
    let mut racers: Vec<_> = (0..6).map(|_| Puppet::start()).collect();
    for round in 0..20 {
        let name = unique("prize");
        place.puppet(&name).kill();
        let order = format!("try-open {name} FI_SHM_DIR={}", place.path());
        racers.iter_mut().for_each(|racer| racer.tell(&order));
        let answers: Vec<_> = racers.iter_mut().map(Puppet::answer).collect();
        let winners = answers.iter().filter(|answer| *answer == "ok").count();
        assert_eq!(winners, 1, "round {round}: {answers:?}");
        assert!(
            answers.iter().all(|a| a == "ok" || a == "AddrInUse"),
            "{answers:?}"
        );
        racers.iter_mut().for_each(|racer| {
            racer.ask("close");
        });
    }
    assert_eq!(place.files(), [""; 0]);
}

#[test]
fn an_endpoint_whose_files_are_removed_goes_on_and_can_be_found_again() {
    let _watchdog = Watchdog::new();
    let place = Place::new("cleaner");
    let mut side = place.side();
    let name = unique("cleaned");
    let mut puppet = place.puppet(&name);
    let (them, us) = (
        side.insert(&name),
        puppet.ask(&format!("insert {}", side.name())),
    );
    get_acquainted(&mut side, &mut puppet, them, &us);
    let clean: [fn(&Path); 3] = [
        |path| each(path, ".sock"),
        |path| each(path, ""),
        |path| fs::remove_dir_all(path).unwrap(),
    ];
    for (number, clean) in (0..).zip(clean) {
        clean(&place.0);
        get_acquainted(&mut side, &mut puppet, them, &us);
        // A look now and then is enough.
        let file = place.0.join(format!("{name}.sock"));
        puppet.ask("drive on");
        side.until(|_| file.exists());
        puppet.ask("drive off");
        let mut late = place.side();
        let to_puppet = late.insert(&name);
        puppet.ask(&format!("recv Tagged 8 {number}"));
        puppet.ask("drive on");
        late.send(Kind::Delivered, to_puppet, 8, number).unwrap();
        late.next().ok();
        puppet.ask("drive off");
        assert_eq!(puppet.ask("next"), format!("done {number} 8 good"));
        assert_eq!(
            open(place.path(), Some(&name)).err().unwrap().errno(),
            Errno::AddrInUse
        );
    }
}

fn each(path: &Path, ending: &str) {
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
        let place = Place::new("bad");
        let mode = |mode| fs::set_permissions(&place.0, fs::Permissions::from_mode(mode)).unwrap();
        let errno = || {
            open(place.path(), None).err().map(|error| {
                assert!(error.to_string().contains(place.path()), "{error}");
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
            mode(bits);
            assert_eq!(errno(), expected, "{bits:o}");
        }
        // Connecting looks as well.
        let mut side = place.side();
        let them = side.insert("nobody");
        mode(0o777);
        assert_eq!(side.send(Kind::Tagged, them, 8, 1), Err(Errno::Acces));
        drop(side);
        mode(0o700);
        let file = format!("{}/file", place.path());
        fs::write(&file, "").unwrap();
        let error = open(&file, None).err().unwrap().to_string();
        assert!(error.contains("ENOTDIR"), "{error}");
        fs::remove_file(file).unwrap();
        // What was prepared under the name of a lock is not opened through a link, or used.
        std::os::unix::fs::symlink("/etc/passwd", place.0.join("bait.lock")).unwrap();
        let error = open(place.path(), Some("bait")).err().unwrap();
        assert!(error.to_string().contains("bait.lock"), "{error}");
        if chown(&place.0, Some(12345), None).is_err() {
            return skip(Need::Rights, "this user cannot give a directory away");
        }
        let error = open(place.path(), None).err().unwrap();
        assert_eq!(error.errno(), Errno::Acces);
        assert!(error.to_string().contains("12345"), "{error}");
    });
}

#[test]
fn endpoints_in_different_places_do_not_meet() {
    let _watchdog = Watchdog::new();
    let (one, two) = (Place::new("one"), Place::new("two"));
    let name = unique("elsewhere");
    let _there = [Some(one.path()), None].map(|path| match path {
        Some(path) => open(path, Some(&name)).unwrap(),
        None => Side::named(&name),
    });
    let params = [("FI_SHM_DIR", two.path()), ("FI_SHM_PEER_TIMEOUT", "50ms")];
    let mut side = Side::with(None, &params);
    let them = side.insert(&name);
    side.send(Kind::Tagged, them, 8, 1).unwrap();
    assert_eq!(side.next().errno(), Errno::ConnRefused);
}
