//! A server and a client, in two processes. Both park while they wait.
//!
//! Run `cargo run --example two_processes -- server` in one terminal and
//! `cargo run --example two_processes -- client` in another one.

use selvedge::owned::{AsyncEndpoint, Pool};
use selvedge::{Address, Caps, Errno, FiAddr, Hints, av, wait};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let is_server = std::env::args().nth(1).as_deref() == Some("server");
    let server = Address::Str("fi_shm://first-hour-server".into());
    let hints = Hints::new().caps(Caps::TAGGED).provider("shm");
    let mut info = selvedge_providers::builtin().infos(&hints)?.remove(0);
    // The provider assigns the client's address.
    info.src_addr = is_server.then(|| server.clone());
    let domain = info.open()?;
    let av = domain.av(&av::Attr::default())?;
    let ep = AsyncEndpoint::open_waiting(&*domain, &info, av.clone(), wait::Object::Unspec)?;
    let pool = Pool::new(&*domain, 4096, 2)?;
    let recv_buf = pool.take().ok_or(Errno::NoBufs)?;
    let mut message = pool.take().ok_or(Errno::NoBufs)?;
    ep.run(async {
        if is_server {
            let (request, _) = ep.trecv(recv_buf, FiAddr::UNSPEC, 1).await?;
            let client = av.insert_one(&str::from_utf8(&request)?.parse()?)?;
            message.write(b"hello from the server")?;
            ep.tsend(message, client, 2).await?;
        } else {
            let server = av.insert_one(&server)?;
            // The request carries the address to reply to.
            message.write(ep.address()?.to_string().as_bytes())?;
            ep.tsend(message, server, 1).await?;
            let (reply, _) = ep.trecv(recv_buf, FiAddr::UNSPEC, 2).await?;
            println!("{}", str::from_utf8(&reply)?);
        }
        Ok(())
    })?
}
