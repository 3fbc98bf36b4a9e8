//! Heat in a plate: each context owns some rows, and puts its outermost rows into its neighbours'
//! memory at each step. Context 0 compares the result with its own computation, and draws it.
//!
//! ```sh
//! cargo run --release -p selvedge-cheetah --example stencil -- -shmem -np 4 [FILE.ppm]
//! cheetahrun -n 4 target/release/examples/stencil
//! ```

#![expect(unsafe_code, reason = "puts into the halo rows of others")]

use std::cell::RefCell;
use std::fs;
use std::rc::Rc;

use selvedge_cheetah::{Bell, BellName, Controller, Error, MatchingHandler, Result, Special};

const COLUMNS: usize = 256;
const ROWS: usize = 192;
const STEPS: usize = 400;
const ROW_BYTES: usize = COLUMNS * size_of::<f64>();

fn main() -> Result {
    let mut args: Vec<String> = std::env::args().collect();
    let controller = Controller::from_args(&mut args)?;
    let plate = in_parallel(&controller)?;
    if let Some(plate) = plate {
        assert!(
            plate == compute_alone(),
            "the result of the contexts differs from that of one context"
        );
        println!(
            "{} contexts: {STEPS} steps equal those of one context",
            controller.ncontexts()
        );
        if let Some(path) = args.get(1) {
            draw(path, &plate)?;
        }
    }
    controller.finalize()
}

/// The rows of one context, between a halo row above and one below. Halos lie in special memory,
/// with two buffers each, since a neighbour may be a step ahead.
struct Part {
    rows: Vec<f64>,
    halos: Special,
    /// Rung once for each received halo row.
    above: Bell,
    below: Bell,
}

/// The halo buffers of a neighbour.
#[derive(Clone, Copy)]
struct Neighbour {
    context: usize,
    halos: u64,
    bell: BellName,
}

/// The first row and the number of rows of a context.
fn share_of(context: usize, contexts: usize) -> (usize, usize) {
    let first = ROWS * context / contexts;
    (first, ROWS * (context + 1) / contexts - first)
}

/// Computes all steps; context 0 gets the whole plate.
fn in_parallel(controller: &Controller) -> Result<Option<Vec<f64>>> {
    let (me, all) = (controller.mycontext(), controller.ncontexts());
    let (first, count) = share_of(me, all);
    if ROWS < all {
        return Err(Error::Usage(format!("{ROWS} rows for {all} contexts")));
    }
    let mut part = Part {
        rows: start()[first * COLUMNS..][..count * COLUMNS].to_vec(),
        halos: controller.special(4 * ROW_BYTES)?,
        above: controller.bell()?,
        below: controller.bell()?,
    };
    let [up, down] = exchange_addresses(controller, &part)?;
    for step in 0..STEPS {
        part.step(controller, step, up, down)?;
    }
    gather(controller, &part.rows)
}

/// Exchanges the addresses of the halo buffers with the neighbours: above, below.
fn exchange_addresses(controller: &Controller, part: &Part) -> Result<[Option<Neighbour>; 2]> {
    let (me, all) = (controller.mycontext(), controller.ncontexts());
    let handler = MatchingHandler::new(controller)?;
    let found = Rc::new(RefCell::new([None; 2]));
    let address_bell = controller.bell()?;
    let (up, down) = (me.checked_sub(1), Some(me + 1).filter(|&down| down < all));
    let mut expected = 0;
    for (side, neighbour, bell) in [(0, up, &part.above), (1, down, &part.below)] {
        let Some(context) = neighbour else {
            continue;
        };
        expected += 1;
        // The upper halo is written by the neighbour above, for which this context is below.
        let halo = part.halos.address(side * 2 * ROW_BYTES);
        handler.send(context, 1 - side as i32, &(halo, bell.name().word()))?;
        let (found, ring) = (Rc::clone(&found), address_bell.clone());
        handler.request::<(u64, u64)>(context, side as i32, move |_, (&halos, &bell)| {
            let bell = BellName::from_word(bell);
            found.borrow_mut()[side] = Some(Neighbour {
                context,
                halos,
                bell,
            });
            ring.set(ring.value() + 1);
        })?;
    }
    controller.wait(&address_bell, expected)?;
    let found = *found.borrow();
    Ok(found)
}

impl Part {
    fn step(
        &mut self,
        controller: &Controller,
        step: usize,
        up: Option<Neighbour>,
        down: Option<Neighbour>,
    ) -> Result {
        let last = self.rows.len() - COLUMNS;
        let sent = controller.bell()?;
        let mut expected = 0;
        for (neighbour, row) in [(up, 0), (down, last)] {
            let Some(neighbour) = neighbour else {
                continue;
            };
            expected += 1;
            let halo = neighbour.halos + (step % 2 * ROW_BYTES) as u64;
            let bytes = (self.rows[row..].as_ptr().cast(), ROW_BYTES);
            // SAFETY: the rows stay unchanged until the bell below. The neighbour has offered the
            // buffer for this, and is at most one step behind.
            unsafe { controller.put(neighbour.context, halo, bytes, Some(&sent), neighbour.bell) }?;
        }
        let rings = step as i32 + 1;
        let above = self.halo(controller, up, &self.above, rings, 0)?;
        let below = self.halo(controller, down, &self.below, rings, 1)?;
        controller.wait(&sent, expected)?;
        self.rows = stepped(&self.rows, above.as_deref(), below.as_deref());
        Ok(())
    }

    /// The halo row of this step, once it was received; none at the edge of the plate.
    fn halo(
        &self,
        controller: &Controller,
        from: Option<Neighbour>,
        bell: &Bell,
        rings: i32,
        side: usize,
    ) -> Result<Option<Vec<f64>>> {
        if from.is_none() {
            return Ok(None);
        }
        controller.wait(bell, rings)?;
        let mut row = vec![0.0_f64; COLUMNS];
        let offset = (2 * side + (rings as usize - 1) % 2) * ROW_BYTES;
        self.halos
            .copy_to(offset, bytemuck::cast_slice_mut(&mut row))?;
        Ok(Some(row))
    }
}

/// Sends all rows to context 0.
fn gather(controller: &Controller, rows: &[f64]) -> Result<Option<Vec<f64>>> {
    let all = controller.ncontexts();
    let handler = MatchingHandler::new(controller)?;
    handler.send_with::<selvedge_cheetah::serialize::Array, [f64]>(0, 0, rows)?;
    if controller.mycontext() != 0 {
        controller.barrier()?;
        return Ok(None);
    }
    let plate = Rc::new(RefCell::new(vec![0.0; ROWS * COLUMNS]));
    let received = controller.bell()?;
    for from in 0..all {
        let (plate, ring) = (Rc::clone(&plate), received.clone());
        let first = share_of(from, all).0 * COLUMNS;
        handler.request::<Vec<f64>>(from, 0, move |_, rows| {
            plate.borrow_mut()[first..][..rows.len()].copy_from_slice(rows);
            ring.set(ring.value() + 1);
        })?;
    }
    controller.wait(&received, all as i32)?;
    controller.barrier()?;
    Ok(Some(plate.take()))
}

/// Initial state: hot at the left edge and in two spots.
fn start() -> Vec<f64> {
    let mut plate = vec![0.0; ROWS * COLUMNS];
    for row in 0..ROWS {
        plate[row * COLUMNS] = 1.0;
        for column in 0..COLUMNS {
            let near = |r: f64, c: f64| (row as f64 - r).hypot(column as f64 - c) < 22.0;
            if near(60.0, 90.0) || near(130.0, 180.0) {
                plate[row * COLUMNS + column] = 1.0;
            }
        }
    }
    plate
}

/// One step of all rows; beyond the edges the temperature is that of the edge.
fn stepped(rows: &[f64], above: Option<&[f64]>, below: Option<&[f64]>) -> Vec<f64> {
    let count = rows.len() / COLUMNS;
    let row = |index: usize| &rows[index * COLUMNS..][..COLUMNS];
    let mut next = Vec::with_capacity(rows.len());
    for index in 0..count {
        let own = row(index);
        let over = if index > 0 {
            row(index - 1)
        } else {
            above.unwrap_or(own)
        };
        let under = if index + 1 < count {
            row(index + 1)
        } else {
            below.unwrap_or(own)
        };
        for column in 0..COLUMNS {
            let left = own[column.saturating_sub(1)];
            let right = own[(column + 1).min(COLUMNS - 1)];
            let around = over[column] + under[column] + left + right;
            next.push(own[column] + 0.2 * (around - 4.0 * own[column]));
        }
    }
    next
}

fn compute_alone() -> Vec<f64> {
    (0..STEPS).fold(start(), |plate, _| stepped(&plate, None, None))
}

/// Colours: black, red, yellow, white.
fn draw(path: &str, plate: &[f64]) -> Result {
    let mut image = format!("P6\n{COLUMNS} {ROWS}\n255\n").into_bytes();
    for &heat in plate {
        let part = |from: f64| ((heat * 3.0 - from).clamp(0.0, 1.0) * 255.0) as u8;
        image.extend([part(0.0), part(1.0), part(2.0)]);
    }
    fs::write(path, image).map_err(|error| Error::Usage(format!("picture {path}: {error}")))
}
