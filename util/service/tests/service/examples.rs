//! The examples run as their first comments say.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use crate::bounded;

/// The program of an example, which cargo builds for the tests of a package.
fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let path = test.parent().unwrap().with_file_name("examples").join(name);
    assert!(
        path.exists(),
        "{path:?} is missing: run `cargo build -p selvedge-service --examples`"
    );
    path
}

fn run(name: &str, arguments: &[&str]) -> String {
    let Output {
        status,
        stdout,
        stderr,
    } = Command::new(program(name))
        .args(arguments)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&stdout).into_owned();
    assert!(
        status.success(),
        "{text}{}",
        String::from_utf8_lossy(&stderr)
    );
    text
}

/// A process of an example that is killed when it is dropped.
struct Background(Child, BufReader<ChildStdout>);

impl Background {
    fn start(name: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new(program(name));
        let mut child = command
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self(child, lines)
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.1.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_example_of_a_round_trip_prints_times() {
    bounded(|| {
        let address = crate::name();
        let mut server = Background::start("ping_pong", &["server", &address]);
        assert!(server.line().contains(&address));
        let times = run("ping_pong", &["client", &address]);
        assert_eq!(times.matches("per round trip").count(), 3, "{times}");
        assert!(server.line().contains("pid"));
    });
}

#[test]
fn the_example_of_a_crash_has_every_response() {
    bounded(|| {
        let text = run("crash", &[]);
        assert_eq!(text.matches("handled by process").count(), 6, "{text}");
        assert_eq!(
            text.matches("request 4: the peer is lost").count(),
            1,
            "{text}"
        );
    });
}

#[test]
fn the_example_of_load_counts_every_request_over_both_transports() {
    bounded(|| {
        for address in crate::addresses() {
            // Each of three clients sends two requests of each size.
            let text = run("load", &["102", &address]);
            assert!(text.starts_with("102 requests, 12582816 bytes"), "{text}");
        }
    });
}

#[test]
fn the_example_of_a_parallel_sum_has_the_sum_of_every_process() {
    bounded(|| {
        let sums = run("parallel_sum", &[]);
        assert_eq!(sums.trim(), ["50000005000000"; 4].join(" "));
    });
}

#[cfg(feature = "tls")]
#[test]
fn the_example_of_a_file_copies_all_bytes_with_tls() {
    bounded(|| {
        let dir =
            PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("copy-{}", std::process::id()));
        let path = |file: &str| dir.join(file).to_str().unwrap().to_owned();
        run("copy", &["certificate", &path("")]);
        let bytes = crate::pattern(3_333_333, 4);
        std::fs::write(dir.join("from"), &bytes).unwrap();
        let to = path("to");
        let receiver = ["receive", "tcp://127.0.0.1:0", &to, &path("")];
        let mut receiver = Background::start("copy", &receiver);
        let line = receiver.line();
        let (_, address) = line.split_once("at ").unwrap();
        let sent = run("copy", &["send", &path("from"), address, &path("")]);
        assert!(sent.contains("sent 3333333 bytes"), "{sent}");
        assert_eq!(receiver.line(), "received 3333333 bytes");
        assert!(std::fs::read(&to).unwrap() == bytes);
        std::fs::remove_dir_all(&dir).unwrap();
    });
}

#[test]
fn the_example_of_a_key_value_store_keeps_values() {
    bounded(|| {
        let _server = Background::start("key_value", &["server"]);
        assert_eq!(run("key_value", &["set", "color", "blue"]), "stored\n");
        assert_eq!(run("key_value", &["get", "color"]), "blue\n");
    });
}

#[test]
fn the_example_of_a_camera_counts_frames() {
    bounded(|| {
        let address = crate::name();
        let mut camera = Background::start("camera", &["publish", &address]);
        assert!(camera.line().contains(&address));
        let mut watcher = Background::start("camera", &["watch", &address]);
        let line = watcher.line();
        let frames = line.split(' ').next().unwrap();
        assert!(frames.parse::<u32>().unwrap() > 0, "{line}");
        assert!(line.contains("frames per second"), "{line}");
    });
}
