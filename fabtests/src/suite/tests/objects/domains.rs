//! Objects of different domains cannot be bound to each other, fi_domain(3).

use std::fmt;
use std::sync::Arc;

use anyhow::anyhow;
use selvedge::info::{EpType, RxAttr};
use selvedge::trigger::{Action, Work};
use selvedge::{
    AddressVector, Bindings, Caps, CompletionQueue, Counter, Domain, Errno, Error, EventQueue,
    Fabric, Hints, Info, LateBindings, MrAccess, SharedReceives, av, cntr, cq, eq,
};

use crate::suite::context::check::{holds, same};
use crate::suite::context::contexts::with_contexts;
use crate::suite::context::{
    Maker, Notify, RAW, Result, Rx, Setup, Skipped, Test, TestContext, queue_count, skip_missing,
};
use crate::suite::defect::Defect;

pub(in crate::suite::tests) const TESTS: &[Test] = &[
    test("endpoints", &[Defect::MixesDomains], endpoints).ep_types(UNCONNECTED),
    test("open_endpoints", &[Defect::MixesDomains], open_endpoints).ep_types(UNCONNECTED),
    test("contexts", &[Defect::MixesDomains], contexts),
    test("regions", &[Defect::MixesDomains], regions),
    test("work", &[Defect::MixesDomains], work),
    test("event_queues", &[Defect::MixesDomains], event_queues).ep_types(&[EpType::Msg]),
    test("of_one_fabric", &[Defect::OneDomain], of_one_fabric).ep_types(&[EpType::Msg]),
];

const UNCONNECTED: &[EpType] = &[EpType::Rdm, EpType::Dgram];

const fn test(
    name: &'static str,
    defects: &'static [Defect],
    run: fn(&mut TestContext) -> Result,
) -> Test {
    Test::new(name, Caps::MSG, defects, run)
        .apis(RAW)
        .processes(1)
}

/// A domain and its objects; an object that the provider does not support is `None`.
struct DomainObjects {
    fabric: Arc<dyn Fabric>,
    domain: Arc<dyn Domain>,
    cq: Arc<dyn CompletionQueue>,
    av: Arc<dyn AddressVector>,
    cntr: Option<Arc<dyn Counter>>,
    srx: Option<Arc<dyn SharedReceives>>,
    eq: Option<Arc<dyn EventQueue>>,
}

impl DomainObjects {
    fn open(info: &Info) -> Result<Self> {
        let fabric = info.fabric()?;
        let domain = fabric.domain(info)?;
        Ok(Self {
            cq: domain.cq(&cq::Attr::default())?,
            av: domain.av(&av::Attr::default())?,
            cntr: domain.cntr(&cntr::Attr::default()).ok(),
            srx: domain.srx(&RxAttr::default()).ok(),
            eq: fabric.eq(&eq::Attr::default()).ok(),
            domain,
            fabric,
        })
    }

    fn bindings(&self) -> Bindings {
        Bindings::new(Arc::clone(&self.cq), Arc::clone(&self.av))
    }
}

/// Opens two domains of the provider, and one domain of another provider.
fn open_domains(ctx: &TestContext, info: &Info) -> Result<[DomainObjects; 3]> {
    let provider = ctx.provider.rsplit(';').next().unwrap_or_default();
    let other = if provider == "tcp" { "udp" } else { "tcp" };
    let hints = Hints::new().provider(other).caps(Caps::MSG);
    let found = selvedge_providers::builtin().infos(&hints);
    let other = found.map_err(|error| Skipped(error.to_string()))?.remove(0);
    Ok([
        DomainObjects::open(info)?,
        DomainObjects::open(info)?,
        DomainObjects::open(&other)?,
    ])
}

/// Checks that a call was refused with a sentence that names both owners: domains or fabrics.
fn check_refusal<T>(
    object: &str,
    result: std::result::Result<T, Error>,
    owners: [&dyn fmt::Debug; 2],
) -> Result {
    let Err(error) = result else {
        let [bound_to, owner] = owners;
        return Err(anyhow!("{object} of {owner:?} is bound to {bound_to:?}"));
    };
    same(object, error.errno(), Errno::Inval)?;
    for owner in owners {
        let name = format!("{owner:?}");
        holds(
            format_args!("{object}: {name:?} is named by {:?}", error.message()),
            error.message().contains(&name),
        )?;
    }
    Ok(())
}

/// Extracts the provider's error from the result of a call of the suite.
fn provider_error<T>(result: Result<T>) -> std::result::Result<T, Error> {
    result.map_err(|error| match error.downcast::<Error>() {
        Ok(error) => error,
        Err(error) => Error::new(Errno::Other, error.to_string()),
    })
}

/// Binds a counter to each kind of operation. Returns the bindings with their names.
fn counters(cntr: &Arc<dyn Counter>) -> Vec<(&'static str, selvedge::Counters)> {
    let mut all = Vec::new();
    let mut add = |name, set: fn(&mut selvedge::Counters) -> &mut Option<Arc<dyn Counter>>| {
        let mut cntrs = selvedge::Counters::default();
        *set(&mut cntrs) = Some(Arc::clone(cntr));
        all.push((name, cntrs));
    };
    add("a counter of sends", |counters| &mut counters.send);
    add("a counter of receives", |counters| &mut counters.recv);
    add("a counter of reads", |counters| &mut counters.read);
    add("a counter of writes", |counters| &mut counters.write);
    add("a counter of remote reads", |counters| {
        &mut counters.remote_read
    });
    add("a counter of remote writes", |counters| {
        &mut counters.remote_write
    });
    all
}

/// Makes bindings of an endpoint of the domain `first`, each with one object of `other`.
fn mixed_bindings(first: &DomainObjects, other: &DomainObjects) -> Vec<(&'static str, Bindings)> {
    let mut all = Vec::new();
    let mut add = |name, change: &dyn Fn(&mut Bindings)| {
        let mut bind = first.bindings();
        change(&mut bind);
        all.push((name, bind));
    };
    add("a queue of sends", &|bind| {
        bind.tx_cq = Arc::clone(&other.cq)
    });
    add("a queue of receives", &|bind| {
        bind.rx_cq = Arc::clone(&other.cq)
    });
    add("an address vector", &|bind| {
        bind.av = Some(Arc::clone(&other.av))
    });
    for (name, cntrs) in other.cntr.iter().flat_map(counters) {
        add(name, &|bind| bind.cntrs = cntrs.clone());
    }
    if let Some(srx) = other.srx.as_ref().filter(|_| first.srx.is_some()) {
        add("shared receives", &|bind| bind.srx = Some(Arc::clone(srx)));
    }
    all
}

/// An endpoint accepts only queues, counters, address vectors and shared receives of its domain.
fn endpoints(ctx: &mut TestContext) -> Result {
    let info = ctx.info_for(&ctx.hints())?;
    let [first, second, foreign] = open_domains(ctx, &info)?;
    first.domain.endpoint(&info, first.bindings())?;
    for other in [&second, &foreign] {
        for (name, bind) in mixed_bindings(&first, other) {
            let opened = first.domain.endpoint(&info, bind);
            check_refusal(name, opened, [&first.domain, &other.domain])?;
        }
    }
    Ok(())
}

/// An open endpoint accepts only objects of its domain.
fn open_endpoints(ctx: &mut TestContext) -> Result {
    let info = ctx.info_for(&ctx.hints())?;
    let [first, second, foreign] = open_domains(ctx, &info)?;
    let ep = first.domain.endpoint(&info, first.bindings())?;
    // Without late bindings, an open endpoint shows nothing about domains, and the test is skipped.
    let (mut has_late_bindings, mut refusal) = (false, None);
    for other in [&second, &foreign] {
        let cq = || Some((Arc::clone(&other.cq), false));
        let mut late = vec![
            ("a queue of sends", LateBindings::default()),
            ("a queue of receives", LateBindings::default()),
        ];
        late[0].1.tx_cq = cq();
        late[1].1.rx_cq = cq();
        let counters = other.cntr.iter().flat_map(counters);
        late.extend(counters.take(4).map(|(name, cntrs)| {
            let late = LateBindings {
                cntrs,
                ..LateBindings::default()
            };
            (name, late)
        }));
        for (name, late) in late {
            match ep.bind_late(&late) {
                Err(error) if error.errno() == Errno::OpBadState => refusal = Some(error),
                bound => {
                    check_refusal(name, bound, [&first.domain, &other.domain])?;
                    has_late_bindings = true;
                }
            }
        }
    }
    match refusal {
        Some(error) if !has_late_bindings => Err(Skipped(error.to_string()).into()),
        _ => Ok(()),
    }
}

/// The contexts of a scalable endpoint accept only objects of its domain.
fn contexts(ctx: &mut TestContext) -> Result {
    let hints = ctx.hints().caps(Caps::MSG | Caps::NAMED_RX_CTX);
    let info = ctx.info_for(&with_contexts(hints, 2))?;
    let [first, second, foreign] = open_domains(ctx, &info)?;
    let sep = first
        .domain
        .scalable_endpoint(&info)
        .map_err(skip_missing)?;
    sep.context(0, &info, first.bindings())?;
    for other in [&second, &foreign] {
        for (name, bind) in mixed_bindings(&first, other) {
            let opened = sep.context(1, &info, bind);
            check_refusal(name, opened, [&first.domain, &other.domain])?;
        }
    }
    Ok(())
}

/// A region accepts only counters of its domain.
fn regions(ctx: &mut TestContext) -> Result {
    let hints = ctx.hints().caps(Caps::MSG | Caps::RMA | Caps::RMA_EVENT);
    let info = ctx.info_for(&hints)?;
    let domains = open_domains(ctx, &info)?;
    let endpoint = ctx.open_unannounced_endpoint(&Setup {
        hints: Some(|hints| hints.caps(Caps::MSG | Caps::RMA | Caps::RMA_EVENT)),
        ..Setup::default()
    })?;
    for maker in [Maker::Test, Maker::Domain] {
        let memory = ctx.memory(&endpoint, maker, 64)?;
        for other in &domains {
            let Some(cntr) = &other.cntr else { continue };
            let bound = memory.bind_counter(cntr, MrAccess::REMOTE_WRITE);
            check_refusal(
                "a counter",
                provider_error(bound),
                [&endpoint.domain, &other.domain],
            )?;
        }
        let counter = endpoint.domain.cntr(&cntr::Attr::default())?;
        let bound = memory.bind_counter(&counter, MrAccess::REMOTE_WRITE);
        provider_error(bound).map_err(skip_missing)?;
    }
    Ok(())
}

/// Deferred work accepts only counters and endpoints of its domain.
fn work(ctx: &mut TestContext) -> Result {
    let hints = ctx.hints().caps(Caps::MSG | Caps::TRIGGER);
    let info = ctx.info_for(&hints)?;
    let domains = open_domains(ctx, &info)?;
    let endpoint = ctx.open_unannounced_endpoint(&Setup {
        hints: Some(|hints| hints.caps(Caps::MSG | Caps::TRIGGER)),
        ..Setup::default()
    })?;
    let counter = endpoint.domain.cntr(&cntr::Attr::default())?;
    for other in &domains {
        let Some(cntr) = &other.cntr else { continue };
        let mixed_actions = [
            ("the counter of work", cntr, Action::Add(&counter, 1)),
            ("a counter that is set", &counter, Action::Set(cntr, 1)),
            ("a counter that is added to", &counter, Action::Add(cntr, 1)),
        ];
        for (name, cntr, action) in mixed_actions {
            let threshold = 1;
            let queued = queue_count(
                &*endpoint.domain,
                &Work {
                    cntr,
                    threshold,
                    action,
                },
            );
            check_refusal(
                name,
                provider_error(queued),
                [&endpoint.domain, &other.domain],
            )?;
        }
        let flushed = endpoint.domain.flush_work(Some(cntr));
        same("flushing the work of a counter", flushed, Err(Errno::Inval))?;
        let notify = Notify::Counter(Some(Arc::clone(cntr)));
        let deferred = endpoint.defer(Rx::msg(8), &counter, 1, notify);
        same(
            "a completion counter of deferred work",
            deferred.err(),
            Some(Errno::Inval),
        )?;
    }
    // Each of two domains has its own work.
    let foreign_counter = domains[0].cntr.as_ref();
    let (foreign_counter, domain) = (
        foreign_counter.ok_or_else(|| anyhow!("no counter"))?,
        &domains[0].domain,
    );
    let notify = Notify::Counter(None);
    let deferred = endpoint.defer_in(domain, Rx::msg(8), foreign_counter, 1, notify);
    same(
        "an endpoint of another domain",
        deferred.err(),
        Some(Errno::Inval),
    )
}

/// Endpoints and passive endpoints accept only event queues of their fabric.
fn event_queues(ctx: &mut TestContext) -> Result {
    let info = ctx.info_for(&ctx.hints())?;
    let [first, _, foreign] = open_domains(ctx, &info)?;
    let (Some(eq), Some(other)) = (&first.eq, &foreign.eq) else {
        return Err(anyhow!("a provider of connections has event queues"));
    };
    first.fabric.passive_endpoint(&info, Arc::clone(eq))?;
    let opened = first.fabric.passive_endpoint(&info, Arc::clone(other));
    check_refusal("an event queue", opened, [&first.fabric, &foreign.fabric])?;
    let mut bind = first.bindings();
    bind.eq = Some(Arc::clone(other));
    let opened = first.domain.endpoint(&info, bind);
    check_refusal("an event queue", opened, [&first.fabric, &foreign.fabric])
}

/// One event queue serves endpoints of several domains of its fabric, even if the fabric was opened
/// more than once.
fn of_one_fabric(ctx: &mut TestContext) -> Result {
    let info = ctx.info_for(&ctx.hints())?;
    let fabric = info.fabric()?;
    let eq = fabric.eq(&eq::Attr::default())?;
    let domains = [fabric.domain(&info)?, fabric.domain(&info)?, info.open()?];
    for domain in &domains {
        let cq = domain.cq(&cq::Attr::default())?;
        let av = domain.av(&av::Attr::default())?;
        let mut bind = Bindings::new(cq, av);
        bind.eq = Some(Arc::clone(&eq));
        let ep = domain.endpoint(&info, bind);
        holds("the event queue of the fabric", ep.is_ok())?;
    }
    Ok(())
}
