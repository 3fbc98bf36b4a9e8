//! The stencil example.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::processes::{LAUNCHER, run_command};

/// Returns the path of the example's program. Cargo builds the examples with the tests, in a
/// folder beside the other programs.
fn example_path() -> PathBuf {
    let folder = Path::new(LAUNCHER).parent().unwrap();
    folder.join("examples/stencil")
}

#[test]
fn a_stencil_over_contexts_equals_that_of_one_and_is_drawn() {
    let folder = std::env::temp_dir().join(format!("cheetah-stencil-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let mut pictures = Vec::new();
    for contexts in ["1", "2", "4", "7"] {
        let picture = folder.join(contexts);
        let mut command = Command::new(example_path());
        command.args(["-shmem", "-np", contexts]).arg(&picture);
        let output = run_command(command);
        assert_eq!(output.code, Some(0), "{output:#?}");
        pictures.push(std::fs::read(picture).unwrap());
    }
    assert!(pictures[0].starts_with(b"P6\n256 192\n"));
    assert!(pictures.iter().all(|picture| *picture == pictures[0]));
    let mut command = Command::new(LAUNCHER);
    command.args(["-n", "4"]).arg(example_path());
    let output = run_command(command);
    assert_eq!(output.code, Some(0), "{output:#?}");
    std::fs::remove_dir_all(folder).unwrap();
}
