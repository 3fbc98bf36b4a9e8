//! Scalable endpoints: contexts with their own addresses under one base address.

use std::sync::Arc;

use selvedge::{AddressVector, Caps, CompletionFlags, Errno, Error, FiAddr, ScalableEndpoint, av};
use selvedge_testkit::domain::DomainContext;
use selvedge_testkit::local::{LocalEndpoint, open_domain, settle};

use crate::common::{MessageEndpoint, Rx, Tx, pattern, sent};
use crate::provider;

const BITS: u32 = 4;
const COUNT: usize = 3;

/// A scalable endpoint with its contexts, which use one address vector.
struct Scalable {
    sep: Arc<dyn ScalableEndpoint>,
    contexts: Vec<MessageEndpoint>,
    av: Arc<dyn AddressVector>,
    domain: Arc<DomainContext>,
}

impl Scalable {
    fn open(count: usize) -> Self {
        let mut many = Self::without_contexts(count);
        (0..count).for_each(|index| many.add(index));
        many
    }

    fn without_contexts(count: usize) -> Self {
        let sut = provider::with_params(
            &[],
            &provider::hints().edit(|info| {
                info.caps |= Caps::NAMED_RX_CTX;
                info.ep_attr.tx_ctx_cnt = count;
                info.ep_attr.rx_ctx_cnt = count;
            }),
        );
        let info = sut.info();
        assert_eq!(info.ep_attr.tx_ctx_cnt, count);
        let domain = open_domain(&info).unwrap();
        Self {
            sep: domain.domain().scalable_endpoint(&info).unwrap(),
            contexts: Vec::new(),
            av: domain.domain().av(&with_bits(BITS)).unwrap(),
            domain,
        }
    }

    fn add(&mut self, index: usize) {
        let context = self.context(index).unwrap();
        self.contexts.push(context);
    }

    fn context(&self, index: usize) -> Result<MessageEndpoint, Error> {
        MessageEndpoint::try_open(&self.domain, |_, config| {
            config.av = Some(Arc::clone(&self.av));
            config.context = Some((Arc::clone(&self.sep), index));
        })
    }

    /// Inserts the other scalable endpoint's address. Returns its index.
    fn insert_endpoint(&self, sep: &Self) -> FiAddr {
        self.av.insert_one(&sep.sep.address().unwrap()).unwrap()
    }

    fn endpoints(&self) -> impl Iterator<Item = &LocalEndpoint> {
        self.contexts.iter().map(|context| &**context)
    }
}

fn with_bits(bits: u32) -> av::Attr {
    let mut attr = av::Attr::default();
    attr.rx_ctx_bits = bits;
    attr
}

/// Two scalable endpoints with each other's addresses, at different indices.
fn pair() -> (Scalable, Scalable, FiAddr, FiAddr) {
    let (a, b) = (Scalable::open(COUNT), Scalable::open(COUNT));
    let to_b = a.insert_endpoint(&b);
    b.insert_endpoint(&b);
    let to_a = b.insert_endpoint(&a);
    (a, b, to_b, to_a)
}

/// Sends from one side to an address; the source as the receiver names it.
fn source(from: &MessageEndpoint, dest: FiAddr, at: &MessageEndpoint, len: usize) -> FiAddr {
    let bytes = pattern(dest.0, len);
    at.recv(&Rx::msg(len));
    from.send(&Tx::msg(dest, &bytes));
    let done = at.wait(&[from]);
    done.assert_bytes(&bytes);
    from.wait(&[at]).assert_entry(sent(CompletionFlags::MSG, 0));
    done.src
}

#[test]
fn every_context_reaches_every_context_and_is_named_as_the_source() {
    let (a, b, to_b, to_a) = pair();
    for (i, from) in a.contexts.iter().enumerate() {
        for (j, at) in b.contexts.iter().enumerate() {
            for len in [8, 3000, 100_000] {
                let src = source(from, to_b.rx_addr(j, BITS), at, len);
                assert_eq!(src, to_a.rx_addr(i, BITS), "from {i} to {j}, {len} bytes");
                assert_eq!(source(at, src, from, len), to_b.rx_addr(j, BITS));
            }
        }
    }
    settle(&a.endpoints().chain(b.endpoints()).collect::<Vec<_>>());
    for side in a.contexts.iter().chain(&b.contexts) {
        assert!(side.poll().is_none(), "a message went astray");
    }
}

#[test]
fn a_directed_receive_takes_messages_of_its_context() {
    let (a, b, to_b, to_a) = pair();
    let at = &b.contexts[2];
    let dest = to_b.rx_addr(2, BITS);
    at.recv(&Rx::msg(8).from(to_a.rx_addr(1, BITS)).context(1));
    at.recv(&Rx::msg(8).from(to_a).context(0));
    at.recv(&Rx::msg(8).from(to_a.rx_addr(2, BITS)).context(2));
    for index in [2, 0, 1] {
        let from = &a.contexts[index];
        from.send(&Tx::msg(dest, &[index as u8; 8]));
        let done = at.wait(&[from]);
        assert_eq!(done.context(), index as u64);
        assert_eq!(done.src, to_a.rx_addr(index, BITS));
        done.assert_bytes(&[index as u8; 8]);
    }
}

#[test]
fn an_endpoint_talks_to_contexts_and_the_address_alone_is_the_first_one_s() {
    let many = Scalable::open(COUNT);
    let domain = provider::with_defaults().open_domain();
    for bits in [BITS, 0] {
        let side = MessageEndpoint::open_with(&domain, |domain, config| {
            config.av = Some(domain.domain().av(&with_bits(bits)).unwrap());
        });
        let to = side.insert(&many.sep.address().unwrap());
        let back = many.av.insert_one(&side.address()).unwrap();
        let reached = if bits == 0 { 1 } else { COUNT };
        for index in 0..reached {
            let context = &many.contexts[index];
            assert_eq!(source(&side, to.rx_addr(index, bits), context, 8), back);
            assert_eq!(source(context, back, &side, 8), to.rx_addr(index, bits));
        }
        // Without context bits the other contexts have no address in the address vector.
        let unknown_peer = source(&many.contexts[1], back, &side, 8);
        assert_eq!(unknown_peer == FiAddr::UNSPEC, bits == 0);
        assert_eq!(side.av.lookup(to), many.sep.address());
    }
}

#[test]
fn an_invalid_context_has_no_address() {
    let (a, _b, to_b, _) = pair();
    let side = &a.contexts[0];
    let no_source = FiAddr(to_b.0 + 77);
    for dest in [no_source, no_source.rx_addr(1, BITS), FiAddr::UNSPEC] {
        assert_eq!(side.try_send(&Tx::msg(dest, b"no peer")), Err(Errno::Inval));
    }
    let context = to_b.rx_addr(1, BITS);
    assert_eq!(a.av.lookup(context), Err(Errno::Inval));
    assert_eq!(a.av.set_user_id(to_b, FiAddr(1 << 63)), Err(Errno::Inval));
    let error = a.domain.domain().av(&with_bits(17)).unwrap_err();
    assert!(error.to_string().contains("requested 17"), "{error}");
}

#[test]
fn a_peer_s_number_of_the_application_s_is_that_of_its_contexts() {
    let (a, b, to_b, to_a) = pair();
    let id = FiAddr(4711);
    b.av.set_user_id(to_a, id).unwrap();
    let (from, at) = (&a.contexts[1], &b.contexts[0]);
    assert_eq!(source(from, to_b, at, 8), id.rx_addr(1, BITS));
}

#[test]
fn contexts_are_opened_once_at_a_time_and_as_many_as_there_are() {
    let many = Scalable::open(2);
    let open = many.context(1).err().unwrap();
    assert_eq!(open.errno(), Errno::Busy);
    let name = many.sep.address().unwrap().to_string();
    assert!(
        open.to_string()
            .contains(&format!("context 1 of scalable endpoint {name}"))
    );
    let beyond = many.context(2).err().unwrap();
    assert_eq!(beyond.errno(), Errno::Inval);
    assert!(beyond.to_string().contains("tx_ctx_cnt is 2"), "{beyond}");
    let mut info = many.domain.info().clone();
    info.ep_attr.rx_ctx_cnt = 65;
    let error = many.domain.domain().scalable_endpoint(&info).unwrap_err();
    assert!(error.to_string().contains("rx_ctx_cnt"), "{error}");
    assert!(
        error.to_string().contains("requested 65, has 64"),
        "{error}"
    );
}

#[test]
fn discovery_reports_the_number_of_contexts() {
    let requests = |tx, rx| {
        provider::hints().edit(|info| {
            info.ep_attr.tx_ctx_cnt = tx;
            info.ep_attr.rx_ctx_cnt = rx;
        })
    };
    let info = provider::with_params(&[], &requests(8, 64)).info();
    assert_eq!((info.ep_attr.tx_ctx_cnt, info.ep_attr.rx_ctx_cnt), (8, 64));
    assert_eq!(
        (
            info.domain_attr.max_ep_tx_ctx,
            info.domain_attr.max_ep_rx_ctx
        ),
        (64, 64)
    );
    assert!(!info.caps.contains(Caps::NAMED_RX_CTX), "nobody asked");
    let why = provider::with_params(&[], &requests(1, 65)).refusal();
    assert!(why.contains("rx_ctx_cnt: requested 65, has 64"), "{why}");
}

#[test]
fn a_message_waits_for_its_context_to_be_opened() {
    let a = Scalable::open(1);
    let mut b = Scalable::without_contexts(2);
    let to_b = a.insert_endpoint(&b);
    let from = &a.contexts[0];
    from.send(&Tx::msg(to_b.rx_addr(1, BITS), b"early"));
    settle(&[from]);
    assert!(from.poll().is_none(), "nobody is there");
    b.add(1);
    b.contexts[0].recv(&Rx::msg(8));
    b.contexts[0].wait(&[from]).assert_bytes(b"early");
    from.wait(&[&b.contexts[0]])
        .assert_entry(sent(CompletionFlags::MSG, 0));
}

#[test]
fn a_closed_context_disconnects_alone_and_can_be_reopened() {
    let (a, mut b, to_b, to_a) = pair();
    for index in 0..2 {
        let (from, at) = (&a.contexts[index], &b.contexts[index]);
        source(from, to_b.rx_addr(index, BITS), at, 8);
        source(at, to_a.rx_addr(index, BITS), from, 8);
    }
    let at = &a.contexts[0];
    at.recv(&Rx::msg(8).from(to_b.rx_addr(1, BITS)).context(1));
    at.recv(&Rx::msg(8).from(to_b).context(0));
    // The contexts have to be connected: a peer that was never there does not fail.
    b.contexts[1].send(&Tx::msg(to_a, b"met"));
    at.wait(&[&b.contexts[1]]).assert_bytes(b"met");
    at.recv(&Rx::msg(8).from(to_b.rx_addr(1, BITS)).context(1));
    drop(b.contexts.remove(1));
    let lost = at.wait(&[&b.contexts[0]]);
    assert_eq!((lost.context(), lost.error().errno), (1, Errno::ConnReset));
    b.contexts[0].send(&Tx::msg(to_a, b"here"));
    let done = at.wait(&[&b.contexts[0]]);
    done.assert_bytes(b"here");
    assert_eq!(done.context(), 0);
    b.add(1);
    let again = b.contexts.last().unwrap();
    assert_eq!(source(at, to_b.rx_addr(1, BITS), again, 8), to_a);
}

#[test]
fn contexts_outlive_the_handle_that_opened_them() {
    let (mut a, b, to_b, to_a) = pair();
    let left = a.contexts.split_off(1);
    drop(a);
    let at = &b.contexts[1];
    assert_eq!(
        source(&left[0], to_b.rx_addr(1, BITS), at, 8),
        to_a.rx_addr(1, BITS)
    );
}
