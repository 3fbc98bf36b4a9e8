//! A message of an endpoint to itself, over the first provider that has tagged messages.
//!
//! Run with `cargo run --example hello`.

use selvedge::owned::{Completions, Endpoint, Pool};
use selvedge::{Caps, Context, Errno, FiAddr, Hints, av, wait};

const TAG: u64 = 7;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let hints = Hints::new().caps(Caps::TAGGED);
    let info = selvedge_providers::builtin().infos(&hints)?.remove(0);
    let domain = info.open()?;
    let av = domain.av(&av::Attr::default())?;
    let ep = Endpoint::open_waiting(&*domain, &info, av.clone(), wait::Object::Unspec)?;
    let peer = av.insert_one(&ep.address()?)?; // this endpoint

    let pool = Pool::new(&*domain, 4096, 2)?;
    let recv_buf = pool.take().ok_or(Errno::NoBufs)?;
    let mut hello = pool.take().ok_or(Errno::NoBufs)?;
    hello.write(b"hello, fabric")?;
    ep.trecv(recv_buf, FiAddr::UNSPEC, TAG, Context(1))?;
    ep.tsend(hello, peer, TAG, Context(2))?;

    let mut done = Completions::with_capacity(2);
    while ep.wait(&mut done, None)? < 2 {}
    for completion in done.drain().filter(|done| done.context == Context(1)) {
        completion.result.map_err(|error| error.errno)?;
        println!("{}", String::from_utf8_lossy(&completion.buf));
    }
    Ok(())
}
