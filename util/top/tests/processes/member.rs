//! A child process that is a member of a collective group. On command, it joins the group and
//! enters barriers.

use std::sync::Arc;
use std::thread;

use selvedge::cq::Entry;
use selvedge::eq::Event;
use selvedge::{
    Address, Caps, CollectiveExt as _, Context, Errno, EventQueue, FiAddr, Hints, Membership,
    OpFlags, av, cq, eq, wait,
};
use selvedge_testkit::local::LocalEndpoint;

use crate::endpoint_process::{EndpointProcess, report};

/// Starts `number` members, each of which inserts the addresses of all.
pub(super) fn start_members(provider: &str, number: usize) -> Vec<EndpointProcess> {
    let start = |_| EndpointProcess::start_as("member", &[("PROVIDER", provider)]);
    let mut members: Vec<_> = (0..number).map(start).collect();
    let names: Vec<_> = members
        .iter()
        .map(|member| member.name().to_owned())
        .collect();
    for member in &mut members {
        member.send_command(&format!("insert {}", names.join(" ")));
        member.wait_done();
    }
    members
}

/// Sends a command to all members, and waits until all have executed it.
pub(super) fn command_all(members: &mut [EndpointProcess], command: &str) {
    members
        .iter_mut()
        .for_each(|member| member.send_command(command));
    members.iter_mut().for_each(EndpointProcess::wait_done);
}

/// Main function of the child process.
pub(super) fn run() {
    let mut member = Member::open(&std::env::var("PROVIDER").unwrap());
    report(&format!("name {}", member.endpoint.address()));
    for command in std::io::stdin().lines() {
        member.execute(&command.unwrap());
        report("done");
    }
}

struct Member {
    endpoint: LocalEndpoint,
    eq: Arc<dyn EventQueue>,
    addrs: Vec<FiAddr>,
    group: Option<Arc<dyn Membership>>,
}

impl Member {
    fn open(provider: &str) -> Self {
        let hints = Hints::new().caps(Caps::MSG | Caps::TAGGED | Caps::COLLECTIVE);
        let infos = selvedge_providers::builtin().infos(&hints).unwrap();
        let is_of_provider = |info: &selvedge::Info| info.fabric_attr.prov_name == provider;
        let info = infos.into_iter().find(is_of_provider).unwrap();
        let eq = info.fabric().unwrap().eq(&eq::Attr::default()).unwrap();
        let endpoint = LocalEndpoint::open_with(&info, |domain, config| {
            let mut attr = cq::Attr::default();
            attr.wait_obj = wait::Object::Unspec;
            config.rx = Some(domain.queue_with(&attr).unwrap());
            config.eq = Some(Arc::clone(&eq));
        });
        Self {
            endpoint,
            eq,
            addrs: Vec::new(),
            group: None,
        }
    }

    fn execute(&mut self, command: &str) {
        let words: Vec<&str> = command.split(' ').collect();
        match &words[..] {
            ["insert", names @ ..] => {
                let addrs = names.iter().map(|name| {
                    let name: Address = name.parse().unwrap();
                    self.endpoint.insert(&name)
                });
                self.addrs = addrs.collect();
            }
            ["join"] => self.join(),
            ["barrier", mode] => self.barrier(*mode == "parked"),
            _ => panic!("{command}"),
        }
    }

    fn join(&mut self) {
        let mut set = av::Set::open(&*self.endpoint.av, &av::SetAttr::default()).unwrap();
        for &addr in &self.addrs {
            set.insert(addr).unwrap();
        }
        let coll = self.endpoint.ep.collective().unwrap();
        self.group = Some(coll.join(&set, Context(1)).unwrap());
        loop {
            assert_eq!(self.endpoint.cq().read(&mut []), Ok(0));
            match self.eq.read() {
                Ok(Event::JoinComplete { .. }) => return,
                Err(Errno::Again) => thread::yield_now(),
                other => panic!("{other:?}"),
            }
        }
    }

    fn barrier(&self, parks: bool) {
        let group = self.group.as_ref().unwrap().addr();
        let coll = self.endpoint.ep.collective().unwrap();
        coll.barrier(group, OpFlags::DEFAULT, Context(2)).unwrap();
        let mut entry = [Entry::default()];
        while if parks {
            self.endpoint.cq().wait(&mut entry, None).unwrap()
        } else {
            self.endpoint.cq().read(&mut entry).unwrap()
        } == 0
        {
            thread::yield_now();
        }
        assert_eq!(entry[0].context, Context(2));
    }
}
