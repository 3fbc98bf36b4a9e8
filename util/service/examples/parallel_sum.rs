//! The sum of the numbers up to ten million, by four processes: `parallel_sum`. The service layer
//! tells the processes each other's addresses, and a collective adds their parts.

#![expect(unsafe_code, reason = "a collective accesses memory of its caller")]

use selvedge::atomic::{Datatype, Op};
use selvedge::collective::{Buffers, CollectiveExt};
use selvedge::{Bindings, Caps, Context, Errno, Hints, OpFlags, av, cq, eq, wait};
use selvedge_service::{Event, Listener, connect};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;
const MEMBERS: usize = 4;

fn main() -> Result<()> {
    if let [_, address, first] = &std::env::args().collect::<Vec<_>>()[..] {
        return add_part(address, first.parse()?);
    }
    let address = format!("shm://parallel-sum-{}", std::process::id());
    let listener = Listener::bind(&address)?;
    for first in 1..=MEMBERS {
        let mut command = std::process::Command::new(std::env::current_exe()?);
        command.args([&address, &first.to_string()]).spawn()?;
    }
    exchange(&listener)?;
    println!("{}", exchange(&listener)?);
    Ok(())
}

/// Takes a request of each member, and responds to each of them with all.
fn exchange(listener: &Listener) -> Result<String> {
    let mut requests = Vec::new();
    while requests.len() < MEMBERS {
        match listener.event().wait()? {
            Event::Request(request) => requests.push(request),
            Event::Lost(_, end) => return Err(format!("a member has ended: {end}").into()),
            _ => {}
        }
    }
    let all = requests.iter().map(|request| &**request);
    let all = String::from_utf8(all.collect::<Vec<_>>().join(&b' '))?;
    requests.iter().for_each(|one| one.respond(all.as_bytes()));
    Ok(all)
}

/// Adds the numbers `first`, `first + MEMBERS` and so on, and then the parts of all members.
fn add_part(address: &str, first: usize) -> Result<()> {
    let hints = Hints::new().caps(Caps::MSG | Caps::COLLECTIVE);
    let info = selvedge_providers::builtin().infos(&hints)?.remove(0);
    let (mut events, mut completions) = (eq::Attr::default(), cq::Attr::default());
    (events.wait_obj, completions.wait_obj) = (wait::Object::Unspec, wait::Object::Unspec);
    let (eq, domain) = (info.fabric()?.eq(&events)?, info.open()?);
    let (cq, av) = (domain.cq(&completions)?, domain.av(&av::Attr::default())?);
    let mut bindings = Bindings::new(cq.clone(), av.clone());
    bindings.eq = Some(eq.clone());
    let ep = domain.endpoint(&info, bindings)?;
    let connection = connect(address).wait()?;
    let own = ep.address()?.to_string();
    for member in str::from_utf8(&connection.request(own.as_bytes()).wait()?)?.split(' ') {
        av.insert_one(&member.parse()?)?;
    }
    let mut all = av::SetAttr::default();
    all.range = av::Range::Universe;
    let collective = ep.collective().ok_or(Errno::NoSys)?;
    let group = collective.join(&av::Set::open(&*av, &all)?, Context(1))?;
    eq.wait(None)?;
    let part: u64 = (first as u64..=10_000_000).step_by(MEMBERS).sum();
    let (mut sum, add) = (0_u64, (Datatype::Uint64, Op::Sum));
    let buffers = Buffers {
        buf: (&raw const part).cast(),
        result: (&raw mut sum).cast(),
        count: 1,
    };
    let flags = OpFlags::empty();
    // SAFETY: both words live until the collective has completed, and nothing else uses them.
    unsafe { collective.allreduce(buffers, add, group.addr(), flags, Context(2))? };
    cq.wait(&mut [cq::Entry::default()], None)?;
    connection.request(sum.to_string().as_bytes()).wait()?;
    Ok(())
}
