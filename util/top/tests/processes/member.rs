//! A process that is a member of a group, which joins and meets the others at barriers when it is told
//! to.

use std::sync::Arc;
use std::thread;

use selvedge::cq::Entry;
use selvedge::eq::Event;
use selvedge::{
    Address, AddressVector, Bindings, Caps, CollectiveExt as _, CompletionQueue, Context, Endpoint,
    Errno, EventQueue, FiAddr, Hints, Membership, OpFlags, av, cq, eq, wait,
};

use crate::talker::{Talker, say};

/// So many members that know each other.
pub(super) fn crew(provider: &str, number: usize) -> Vec<Talker> {
    let start = |_| Talker::start_as("member", &[("PROVIDER", provider)]);
    let mut members: Vec<_> = (0..number).map(start).collect();
    let names: Vec<_> = members.iter().map(|it| it.name().to_owned()).collect();
    for member in &mut members {
        member.order(&format!("know {}", names.join(" ")));
        member.done();
    }
    members
}

/// All members do something, and wait for each other.
pub(super) fn all(members: &mut [Talker], order: &str) {
    members.iter_mut().for_each(|member| member.order(order));
    members.iter_mut().for_each(Talker::done);
}

/// The process, from inside.
pub(super) fn run() {
    let mut member = Member::open(&std::env::var("PROVIDER").unwrap());
    say(&format!("name {}", member.ep.address().unwrap()));
    for order in std::io::stdin().lines() {
        member.obey(&order.unwrap());
        say("done");
    }
}

struct Member {
    ep: Arc<dyn Endpoint>,
    cq: Arc<dyn CompletionQueue>,
    eq: Arc<dyn EventQueue>,
    av: Arc<dyn AddressVector>,
    addrs: Vec<FiAddr>,
    group: Option<Arc<dyn Membership>>,
}

impl Member {
    fn open(provider: &str) -> Self {
        let hints = Hints::new().caps(Caps::MSG | Caps::TAGGED | Caps::COLLECTIVE);
        let infos = selvedge_providers::builtin().infos(&hints).unwrap();
        let is_it = |info: &selvedge::Info| info.fabric_attr.prov_name == provider;
        let info = infos.into_iter().find(is_it).unwrap();
        let fabric = info.fabric().unwrap();
        let domain = fabric.domain(&info).unwrap();
        let eq = fabric.eq(&eq::Attr::default()).unwrap();
        let mut attr = cq::Attr::default();
        attr.wait_obj = wait::Object::Unspec;
        let cq = domain.cq(&attr).unwrap();
        let av = domain.av(&av::Attr::default()).unwrap();
        let mut bind = Bindings::new(Arc::clone(&cq), Arc::clone(&av));
        bind.eq = Some(Arc::clone(&eq));
        Self {
            ep: domain.endpoint(&info, bind).unwrap(),
            cq,
            eq,
            av,
            addrs: Vec::new(),
            group: None,
        }
    }

    fn obey(&mut self, order: &str) {
        let words: Vec<&str> = order.split(' ').collect();
        match &words[..] {
            ["know", names @ ..] => {
                let known = names.iter().map(|name| {
                    let name: Address = name.parse().unwrap();
                    self.av.insert_one(&name).unwrap()
                });
                self.addrs = known.collect();
            }
            ["join"] => self.join(),
            ["barrier", way] => self.barrier(*way == "asleep"),
            _ => panic!("{order}"),
        }
    }

    fn join(&mut self) {
        let mut set = av::Set::open(&*self.av, &av::SetAttr::default()).unwrap();
        for &addr in &self.addrs {
            set.insert(addr).unwrap();
        }
        let coll = self.ep.collective().unwrap();
        self.group = Some(coll.join(&set, Context(1)).unwrap());
        loop {
            assert_eq!(self.cq.read(&mut []), Ok(0));
            match self.eq.read() {
                Ok(Event::JoinComplete { .. }) => return,
                Err(Errno::Again) => thread::yield_now(),
                other => panic!("{other:?}"),
            }
        }
    }

    fn barrier(&self, sleeps: bool) {
        let group = self.group.as_ref().unwrap().addr();
        let coll = self.ep.collective().unwrap();
        coll.barrier(group, OpFlags::DEFAULT, Context(2)).unwrap();
        let mut entry = [Entry::default()];
        while match sleeps {
            true => self.cq.wait(&mut entry, None).unwrap(),
            false => self.cq.read(&mut entry).unwrap(),
        } == 0
        {
            thread::yield_now();
        }
        assert_eq!(entry[0].context, Context(2));
    }
}
