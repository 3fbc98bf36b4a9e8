//! Programs give the same output with and without the heap.

use std::time::{Duration, Instant};

use crate::{folder, installed, library, shell};

#[test]
#[ignore = "takes minutes; HEAP_LOOP_SECONDS sets how long it repeats"]
fn real_programs_give_the_same_output_on_the_heap() {
    let folder = folder("output");
    let seconds = std::env::var("HEAP_LOOP_SECONDS").map_or(0, |text| text.parse().unwrap());
    let end = Instant::now() + Duration::from_secs(seconds);
    let library = library();
    let output = |command: &str, with_heap: bool| {
        let mut shell = shell(&folder, command, with_heap.then_some(&*library));
        shell.output().unwrap().stdout
    };
    let programs = installed();
    let mut runs = 0;
    loop {
        for (_, command) in &programs {
            let expected = output(command, false);
            let found = output(command, true);
            assert!(!expected.is_empty(), "{command}");
            assert!(
                found == expected,
                "{command}\n{}",
                String::from_utf8_lossy(&found)
            );
            runs += 1;
        }
        if Instant::now() >= end {
            break;
        }
    }
    println!("{runs} pairs of runs had the same output");
}
