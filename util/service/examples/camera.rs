//! Publishes frames of a camera: `camera publish` in one terminal, `camera` in any number of
//! others.
//!
//! Over shared memory, the frames stay where the publisher has written them: each watcher reads
//! them in place.

use std::error::Error;
use std::time::{Duration, Instant};

use selvedge_service::{Publisher, subscribe};

/// A row of 1920 pixels with three bytes each.
const ROW: usize = 1920 * 3;
const ROWS: usize = 1080;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let address = arguments.get(1).map_or("shm://camera", |address| address);
    match arguments.first().map(String::as_str) {
        Some("publish") => publish(address),
        _ => watch(address),
    }
}

/// Publishes 100 frames per second until the process is killed.
fn publish(address: &str) -> Result<(), Box<dyn Error>> {
    let publisher = Publisher::bind(address, 4)?;
    println!("publishing at {}", publisher.addresses()?.join(","));
    let start = Instant::now();
    for number in 0_u32.. {
        let mut frame = publisher.message(ROW * ROWS)?;
        frame.fill(number as u8);
        publisher.publish_message(frame)?;
        let due = Duration::from_millis(10) * number;
        std::thread::sleep(due.saturating_sub(start.elapsed()));
    }
    Ok(())
}

/// Prints the number of frames of each second. A watcher that is slow loses frames and sees how
/// many.
fn watch(address: &str) -> Result<(), Box<dyn Error>> {
    let mut subscriber = subscribe(address).wait()?;
    let mut row = [0; ROW];
    loop {
        let (start, mut frames, mut lost) = (Instant::now(), 0, 0);
        while start.elapsed() < Duration::from_secs(1) {
            let frame = subscriber.receive().wait()?;
            for number in 0..ROWS {
                frame.copy_to(number * ROW, &mut row)?;
                assert!(row.iter().all(|&pixel| pixel == frame.number() as u8));
            }
            frames += 1;
            lost += frame.lost();
        }
        println!("{frames} frames per second, {lost} lost");
    }
}
