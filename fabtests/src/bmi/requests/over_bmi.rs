//! Requests over BMI.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use selvedge_bmi::{Bmi, Config, ContextId, Post, Posted};

use super::server::{self, BATCH, Counts, IDLE};

#[derive(Debug)]
pub(super) struct Server {
    bmi: Bmi,
    context: ContextId,
}

impl Server {
    pub(super) fn open(method: &str) -> anyhow::Result<Self> {
        let bmi = Bmi::initialize(Config::server(&format!("{method}://localhost")))?;
        Ok(Self {
            context: bmi.open_context()?,
            bmi,
        })
    }
}

impl server::Server for Server {
    fn address(&self) -> anyhow::Result<String> {
        self.bmi.urls().pop().context("BMI listens at no URL")
    }

    fn serve_requests(&mut self, counts: &mut Counts) -> anyhow::Result<()> {
        let mut requests = Vec::with_capacity(BATCH);
        self.bmi.testunexpected(BATCH, 0, IDLE, |request| {
            requests.push((request.addr, request.tag));
        })?;
        for (addr, tag) in requests {
            counts.count(addr.0 as u64);
            let response = Post::new(addr, Vec::<u8>::new(), tag, self.context);
            self.bmi.post_send(response)?;
        }
        self.bmi
            .testcontext(BATCH, Duration::ZERO, self.context, |_| ())?;
        Ok(())
    }
}

/// The user pointer of requests; responses have none.
const SENT: u64 = 1;

/// Sends requests until this process is killed.
pub(super) fn send_requests(url: &str, size: usize, window: usize) -> anyhow::Result<()> {
    let bmi = Bmi::initialize(Config::client())?;
    let context = bmi.open_context()?;
    let peer = bmi.addr_lookup(url)?;
    let post_request = |tag: i32| -> anyhow::Result<()> {
        let response = bmi.post_recv(Post::new(peer, Vec::<u8>::new(), tag, context))?;
        ensure!(
            matches!(response, Posted::Pending(_)),
            "a response was received before its request was sent"
        );
        let post = Post::new(peer, vec![0_u8; size], tag, context).with_user(SENT);
        bmi.post_sendunexpected(post, 0)?;
        Ok(())
    };
    let mut tag = 0_i32;
    let mut to_send = window;
    loop {
        for _ in 0..to_send {
            post_request(tag)?;
            tag = tag.wrapping_add(1);
        }
        let mut failed = None;
        to_send = 0;
        bmi.testcontext(BATCH, IDLE, context, |done| {
            failed = failed.or_else(|| done.outcome.err());
            to_send += usize::from(done.user != SENT);
        })?;
        ensure!(failed.is_none(), "a request failed: {failed:?}");
    }
}
