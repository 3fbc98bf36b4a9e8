//! The providers of both links: their selection by `FI_LNX_PROV_LINKS`, and their infos.

use std::fmt;
use std::sync::Arc;

use selvedge::info::{EpType, MemTagFormat, Mismatch};
use selvedge::param::Params;
use selvedge::{
    Address, Caps, Domain, Errno, Error, Hints, Info, MrMode, MsgOrder, Provider, Query, Registry,
    Result,
};

use crate::config::PROV_LINKS;
use crate::mr::link_modes;
use crate::wire::EAGER;

/// The providers that can be links.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Providers {
    /// The near and the far provider, unless the parameter selects others.
    pub(crate) default: [&'static dyn Provider; 2],
    /// Further providers. Their receives from one peer do not fail when the peer does.
    pub(crate) unwatched: &'static [&'static dyn Provider],
}

/// A provider that is selected for a link.
#[derive(Clone, Debug)]
pub(crate) struct Selected {
    provider: &'static dyn Provider,
    /// The name of the provider with its layers, as in hints.
    name: String,
    /// The name of the link's domain; empty for any.
    domain: String,
    /// Whether receives from one peer fail when the peer does.
    is_watched: bool,
}

/// The requirements of an lnx endpoint on its links.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needs {
    /// The registration modes of the near and the far link.
    pub(crate) mr_modes: [MrMode; 2],
    pub(crate) tx_size: usize,
    pub(crate) rx_size: usize,
}

impl Needs {
    /// The requirements of an application's hints. Modes that the application accepts are not
    /// requirements, except for [`MrMode::BASIC`].
    pub(crate) fn of_hints(hints: &Hints) -> Self {
        let mut info = hints.info().clone();
        info.domain_attr.mr_mode &= MrMode::BASIC;
        Self::of(&info)
    }

    /// The requirements of an info of lnx.
    pub(crate) fn of(info: &Info) -> Self {
        Self {
            mr_modes: link_modes(info.domain_attr.mr_mode),
            tx_size: info.tx_attr.size,
            rx_size: info.rx_attr.size,
        }
    }

    fn hints(&self, features: Features, link: usize, selected: &Selected) -> Hints {
        let hints = Hints::new()
            .caps(MESSAGES | features.memory)
            .ep_type(EpType::Rdm);
        let hints = hints.inject_size(features.inject_size);
        let hints = hints.provider(&selected.name).domain(&selected.domain);
        let hints = hints.msg_order(MsgOrder::SAS).mr_mode(self.mr_modes[link]);
        hints.tx_size(self.tx_size).rx_size(self.rx_size)
    }
}

/// The info of a link.
#[derive(Clone, Debug)]
pub(crate) struct LinkInfo {
    pub(crate) info: Info,
    pub(crate) is_watched: bool,
    hints: Hints,
    provider: &'static dyn Provider,
}

/// An open domain of a link.
#[derive(Clone, Debug)]
pub(crate) struct LinkDomain {
    pub(crate) info: Info,
    pub(crate) domain: Arc<dyn Domain>,
    /// Whether receives from one peer fail when the peer does.
    pub(crate) is_watched: bool,
}

impl LinkInfo {
    /// Opens a domain of the link, with registrations of `mr_mode`.
    ///
    /// # Errors
    /// The provider's error.
    pub(crate) fn open(self, params: &Params, mr_mode: MrMode) -> Result<LinkDomain, Error> {
        let registry = Registry::new().with(self.provider);
        let mut info = registry
            .with_params(params.clone())
            .adopt(self.info, &self.hints)?;
        if self.is_watched {
            info.domain_attr.mr_mode = mr_mode;
        }
        Ok(LinkDomain {
            domain: info.open()?,
            info,
            is_watched: self.is_watched,
        })
    }
}

/// Capabilities that both links must have.
pub(crate) const MESSAGES: Caps = Caps::MSG
    .union(Caps::TAGGED)
    .union(Caps::SOURCE)
    .union(Caps::DIRECTED_RECV)
    .union(Caps::TAGGED_DIRECTED_RECV);
/// Optional features that lnx has if both links have them.
#[derive(Clone, Copy, Debug)]
struct Features {
    memory: Caps,
    inject_size: usize,
}

/// The features that lnx tries, in this order.
const FEATURES: [Features; 5] = {
    let rma = Caps::RMA;
    let atomic = rma.union(Caps::ATOMIC);
    [
        Features::new(atomic.union(Caps::RMA_EVENT), EAGER),
        Features::new(atomic, EAGER),
        Features::new(rma, EAGER),
        Features::new(Caps::empty(), EAGER),
        Features::new(Caps::empty(), 0),
    ]
};

impl Features {
    const fn new(memory: Caps, inject_size: usize) -> Self {
        Self {
            memory,
            inject_size,
        }
    }
}

/// The index of the far link.
const FAR: usize = 1;
/// The fewest bits that the tags of a link must have.
const TAG_BITS_MIN: u32 = 24;

impl Providers {
    /// The providers that the parameter selects.
    ///
    /// # Errors
    /// [`Errno::Inval`] for a value that does not name two of the providers.
    pub(crate) fn select(&self, links: &str) -> Result<[Selected; 2], Error> {
        if links.is_empty() {
            return Ok(self.default.map(|provider| self.selected(provider, "", "")));
        }
        let (near, far) = links.split_once('+').ok_or_else(|| {
            let reason = "expected two links, NEAR+FAR, such as shm+ofi";
            invalid(links, reason)
        })?;
        Ok([self.named(links, near)?, self.named(links, far)?])
    }

    /// The provider with a name such as `tcp`, `ofi`, `verbs;ofi_rxm;ofi` or `cxi;ofi:cxi0`.
    fn named(&self, links: &str, link: &str) -> Result<Selected, Error> {
        let (name, domain) = link.split_once(':').unwrap_or((link, ""));
        let name = name.trim();
        let upper_layer = name.rsplit(';').next().unwrap_or(name).trim();
        let has_name = |provider: &dyn Provider| {
            provider.name().eq_ignore_ascii_case(upper_layer)
                && (self.is_unwatched(provider) || upper_layer == name)
        };
        let mut all = self
            .default
            .into_iter()
            .chain(self.unwatched.iter().copied());
        let known: Vec<_> = all.clone().map(|provider| provider.name()).collect();
        let provider = all.find(|&provider| has_name(provider)).ok_or_else(|| {
            let reason = format!(
                "no link has the provider {name:?}; links are {}, and the providers of another \
                 libfabric with the layer ofi, such as verbs;ofi_rxm;ofi",
                known.join(", ")
            );
            invalid(links, &reason)
        })?;
        Ok(self.selected(provider, name, domain.trim()))
    }

    fn selected(&self, provider: &'static dyn Provider, name: &str, domain: &str) -> Selected {
        Selected {
            provider,
            name: name.to_owned(),
            domain: domain.to_owned(),
            is_watched: !self.is_unwatched(provider),
        }
    }

    fn is_unwatched(&self, provider: &dyn Provider) -> bool {
        let mut unwatched = self.unwatched.iter();
        unwatched.any(|it| it.name() == provider.name())
    }
}

fn invalid(links: &str, reason: &str) -> Error {
    Error::new(Errno::Inval, format!("{PROV_LINKS}={links:?}: {reason}"))
}

/// The first info that each link offers for an endpoint of lnx. The infos have remote memory access
/// if both links offer it. `dest` is the peer's address on the far link, which determines the
/// interface that the link uses.
///
/// # Errors
/// The providers' errors. The inner error is the reason for which a link is not possible.
pub(crate) fn discover(
    selected: &[Selected; 2],
    needs: Needs,
    params: &Params,
    dest: Option<&Address>,
) -> Result<Result<[LinkInfo; 2], Mismatch>, Error> {
    let mut mismatch = None;
    for features in FEATURES {
        let mut found = Vec::with_capacity(2);
        for (number, link) in selected.iter().enumerate() {
            let mut hints = needs.hints(features, number, link);
            if let Some(dest) = dest.filter(|_| number == FAR) {
                hints = hints.dest_addr(dest.clone());
            }
            match link.find(&hints, params)? {
                Ok(info) => found.push(LinkInfo {
                    info,
                    is_watched: link.is_watched,
                    hints,
                    provider: link.provider,
                }),
                Err(reason) => mismatch = Some(reason),
            }
        }
        if let Ok(both) = <[LinkInfo; 2]>::try_from(found) {
            return Ok(Ok(both));
        }
    }
    Ok(Err(
        mismatch.expect("an info that is not found has a reason")
    ))
}

impl Selected {
    /// The first info of the provider, or the first of those that reach other hosts, if there are
    /// any.
    fn find(&self, hints: &Hints, params: &Params) -> Result<Result<Info, Mismatch>, Error> {
        if !self.provider.is_enabled(params) {
            let names = self.provider.params().iter().map(|param| param.name);
            let names = names.collect::<Vec<_>>().join(", ");
            return Ok(Err(self.mismatch(format_args!(
                "no such provider, because {} is off: set {names}",
                self.provider.name()
            ))));
        }
        let candidates = self.provider.getinfo(&Query::new(hints, params))?;
        let mut reason = None;
        let mut infos = Vec::new();
        for candidate in candidates {
            match candidate {
                Ok(info) if tag_bits(info.ep_attr.mem_tag_format) < TAG_BITS_MIN => {
                    let text = format!("tags of fewer than {TAG_BITS_MIN} bits");
                    reason.get_or_insert(text);
                }
                Ok(info) if !self.has_addressing(&info, hints) => {
                    let text = "remote memory by offsets alone, without FI_MR_VIRT_ADDR";
                    reason.get_or_insert_with(|| text.to_owned());
                }
                Ok(info) => infos.push(info),
                Err(mismatch) => drop(reason.get_or_insert_with(|| mismatch.to_string())),
            }
        }
        let is_remote = |info: &Info| info.caps.contains(Caps::REMOTE_COMM);
        let at = infos.iter().position(is_remote).unwrap_or(0);
        if at < infos.len() {
            return Ok(Ok(infos.swap_remove(at)));
        }
        Ok(Err(match reason {
            Some(reason) => self.mismatch(reason),
            None => self.mismatch("no endpoint that fits"),
        }))
    }

    /// Whether the link addresses remote memory as the hints require. Libraries take modes that the
    /// hints accept for permissions.
    fn has_addressing(&self, info: &Info, hints: &Hints) -> bool {
        let [has, required] =
            [info, hints.info()].map(|info| info.domain_attr.mr_mode.contains(MrMode::VIRT_ADDR));
        self.is_watched || has == required || !info.caps.contains(Caps::RMA)
    }

    fn mismatch(&self, reason: impl fmt::Display) -> Mismatch {
        Mismatch::new(PROV_LINKS, format_args!("a link over {self}"), reason)
    }

    /// The provider, which resolves nodes and services.
    pub(crate) fn infos(&self, query: &Query<'_>) -> Result<Vec<Info>, Error> {
        let candidates = self.provider.getinfo(query)?;
        Ok(candidates.into_iter().flatten().collect())
    }

    /// The hints for an endpoint that exchanges messages.
    pub(crate) fn message_hints(&self, needs: Needs, link: usize) -> Hints {
        needs.hints(Features::new(Caps::empty(), 0), link, self)
    }
}

impl fmt::Display for Selected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.name {
            "" => f.write_str(self.provider.name()),
            name => f.write_str(name),
        }
    }
}

/// The number of bits that tags of this format have.
pub(crate) fn tag_bits(format: MemTagFormat) -> u32 {
    match format {
        MemTagFormat::BITS => u64::BITS,
        MemTagFormat(format) => u64::BITS - format.leading_zeros(),
    }
}
