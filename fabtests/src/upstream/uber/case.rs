//! What a configuration says: its words, read.

use anyhow::{Context as _, bail};
use selvedge::atomic::{Datatype, Family, Op};
use selvedge::info::{EpType, Progress, Threading};
use selvedge::{Caps, MrMode, OpFlags, av, wait};
use selvedge_testkit::atomics::families;

use super::config::Config;
use crate::upstream::atomics;

/// One configuration.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) provider: Option<String>,
    /// Where the server is, other than the options say.
    pub(super) node: Option<String>,
    pub(super) service: Option<String>,
    pub(super) test: Test,
    pub(super) class: Class,
    pub(super) function: Function,
    /// Besides those of the class.
    pub(super) caps: Caps,
    pub(super) ep_type: EpType,
    /// Queues tell of completions.
    pub(super) queues: bool,
    /// Counters tell of completions.
    pub(super) counters: bool,
    pub(super) av_type: av::Type,
    pub(super) eq_wait: wait::Object,
    pub(super) cq_wait: wait::Object,
    pub(super) mr_mode: Option<MrMode>,
    pub(super) progress: Progress,
    pub(super) threading: Option<Threading>,
    pub(super) op: Op,
    pub(super) datatype: Datatype,
    /// Of the calls that take flags.
    pub(super) msg_flags: OpFlags,
    pub(super) tx: Direction,
    pub(super) rx: Direction,
    /// Few sizes, few iterations.
    pub(super) is_quick: bool,
}

/// What the operations of one direction are reported by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Direction {
    pub(super) selective: bool,
    pub(super) op_flags: OpFlags,
}

/// `test_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Test {
    Unit,
    Latency,
    Bandwidth,
}

/// `test_class`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Msg,
    Tagged,
    Rma,
    Atomic,
}

/// `class_function`: a call of the man pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Function {
    pub(super) what: What,
    pub(super) form: Form,
    pub(super) data: bool,
}

/// What is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Send,
    Write,
    Read,
    Atomic(Family),
}

/// How it is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// One buffer.
    Plain,
    /// A list (`v`).
    List,
    /// A structure and flags (`msg`).
    Message,
    /// A copy at once (`inject`).
    Inject,
}

impl Case {
    /// Reads a configuration.
    ///
    /// # Errors
    /// The key and the word that is none of its words.
    pub(super) fn read(config: &Config) -> anyhow::Result<Self> {
        let read = Reader(config);
        let completion = read.word("comp_type", COMPLETIONS)?;
        let class = read.word("test_class", CLASSES)?;
        Ok(Self {
            provider: config.get("prov_name").cloned(),
            node: config.get("node").cloned(),
            service: config.get("service").cloned(),
            test: read.word("test_type", TESTS)?,
            class,
            function: read.function(class)?,
            caps: read.caps()?,
            ep_type: read.with("ep_type", EpType::Rdm, |word| Ok(word.parse()?))?,
            queues: completion != "counter",
            counters: completion != "queue",
            av_type: read.word("av_type", VECTORS)?,
            eq_wait: read.word("eq_wait_obj", WAITS)?,
            cq_wait: read.word("cq_wait_obj", WAITS)?,
            mr_mode: config
                .get("mr_mode")
                .map(|_| read.flags("mr_mode", "FI_MR_", MrMode::from_name))
                .transpose()?,
            progress: read.with("progress", Progress::Unspec, |word| Ok(word.parse()?))?,
            threading: read.with("threading", None, |word| Ok(Some(word.parse()?)))?,
            op: read.with("op", Op::Min, atomics::op)?,
            datatype: read.with("datatype", Datatype::Int8, atomics::datatype)?,
            msg_flags: read.flags("msg_flags", "FI_", OpFlags::from_name)?,
            tx: read.direction("tx_cq_bind_flags", "tx_op_flags")?,
            rx: read.direction("rx_cq_bind_flags", "rx_op_flags")?,
            is_quick: read.has("test_flags", "FT_FLAG_QUICKTEST"),
        })
    }

    /// Why there is no such test, if there is none: the calls of one class in another, operations
    /// that are not of the call's family, completions that nobody could notice.
    pub(super) fn nonsense(&self) -> Option<&'static str> {
        let own = match (self.class, self.function.what) {
            (Class::Msg | Class::Tagged, What::Send) | (Class::Rma, What::Write | What::Read) => {
                true
            }
            (Class::Atomic, What::Atomic(family)) => families(self.op).contains(&family),
            _ => false,
        };
        if !own {
            return Some("the call is of another class");
        }
        let is_received = matches!(self.class, Class::Msg | Class::Tagged);
        match is_received && !self.is_reported(self.rx) && !self.counters {
            true => Some("nobody would know that a message has come"),
            false => None,
        }
    }

    /// Whether the queue of a direction has an entry for each success.
    pub(super) fn is_reported(&self, direction: Direction) -> bool {
        let flags = match self.function.form {
            Form::Message => self.msg_flags,
            _ => direction.op_flags,
        };
        (self.queues && !direction.selective) || flags.contains(OpFlags::COMPLETION)
    }

    /// What discovery is asked for.
    pub(super) fn all_caps(&self) -> Caps {
        self.caps
            | match self.class {
                Class::Msg => Caps::MSG,
                Class::Tagged => Caps::TAGGED,
                Class::Rma => Caps::MSG | Caps::RMA,
                Class::Atomic => Caps::MSG | Caps::ATOMIC,
            }
    }

    /// What it is called in tables.
    pub(super) fn name(&self) -> String {
        let function = FUNCTIONS.iter().find(|(_, f)| *f == self.function);
        let function = function.map_or("", |(name, _)| name);
        let function = function.trim_start_matches("FT_FUNC_").to_lowercase();
        let prefix = match self.class {
            Class::Tagged => "t",
            _ => "",
        };
        let mut name = format!("{:?} {prefix}{function}", self.test).to_lowercase();
        if self.class == Class::Atomic {
            name += &format!(" {:?} {:?}", self.op, self.datatype);
        }
        name
    }
}

/// Looks words up.
struct Reader<'a>(&'a Config);

impl Reader<'_> {
    /// The value of a word, or that of the first one where the key is not there.
    fn word<T: Copy>(&self, key: &str, words: &[(&str, T)]) -> anyhow::Result<T> {
        let Some(text) = self.0.get(key) else {
            return Ok(words[0].1);
        };
        match words.iter().find(|(word, _)| word == text) {
            Some((_, value)) => Ok(*value),
            None => bail!("{key}: {text:?} is none of its words"),
        }
    }

    fn with<T>(
        &self,
        key: &str,
        default: T,
        read: impl FnOnce(&str) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let text = self.0.get(key);
        text.map_or(Ok(default), |text| {
            read(text).with_context(|| format!("{key}: {text:?}"))
        })
    }

    fn words(&self, key: &str) -> impl Iterator<Item = &str> {
        let text = self.0.get(key).map_or("", String::as_str);
        text.split('|').filter(|word| !word.is_empty())
    }

    fn has(&self, key: &str, word: &str) -> bool {
        self.words(key).any(|other| other == word)
    }

    fn flags<F: FromIterator<F>>(
        &self,
        key: &str,
        prefix: &str,
        named: fn(&str) -> Option<F>,
    ) -> anyhow::Result<F> {
        let flags = self.words(key).map(|word| {
            let bare = word.strip_prefix(prefix).unwrap_or(word);
            named(bare).with_context(|| format!("{key}: there is no {word:?}"))
        });
        flags.collect()
    }

    fn caps(&self) -> anyhow::Result<Caps> {
        self.flags("constant_caps", "FI_", |name| match name {
            "ATOMICS" => Some(Caps::ATOMIC),
            name => Caps::from_name(name),
        })
    }

    fn direction(&self, bind: &str, op: &str) -> anyhow::Result<Direction> {
        for word in self.words(bind) {
            let known = ["FI_SELECTIVE_COMPLETION", "FI_TRANSMIT", "FI_RECV"];
            anyhow::ensure!(known.contains(&word), "{bind}: there is no {word:?}");
        }
        Ok(Direction {
            selective: self.has(bind, "FI_SELECTIVE_COMPLETION"),
            op_flags: self.flags(op, "FI_", OpFlags::from_name)?,
        })
    }

    /// The call; the simplest of its class where none is named.
    fn function(&self, class: Class) -> anyhow::Result<Function> {
        if self.0.contains_key("class_function") {
            return self.word("class_function", FUNCTIONS);
        }
        let name = match class {
            Class::Msg | Class::Tagged => "FT_FUNC_SEND",
            Class::Rma => "FT_FUNC_WRITE",
            Class::Atomic => "FT_FUNC_ATOMIC",
        };
        let found = FUNCTIONS.iter().find(|(word, _)| *word == name);
        found.map(|(_, function)| *function).context(name)
    }
}

const TESTS: &[(&str, Test)] = &[
    ("FT_TEST_UNIT", Test::Unit),
    ("FT_TEST_LATENCY", Test::Latency),
    ("FT_TEST_BANDWIDTH", Test::Bandwidth),
];

const CLASSES: &[(&str, Class)] = &[
    ("FT_CAP_MSG", Class::Msg),
    ("FT_CAP_TAGGED", Class::Tagged),
    ("FT_CAP_RMA", Class::Rma),
    ("FT_CAP_ATOMIC", Class::Atomic),
];

const COMPLETIONS: &[(&str, &str)] = &[
    ("FT_COMP_QUEUE", "queue"),
    ("FT_COMP_CNTR", "counter"),
    ("FT_COMP_ALL", "all"),
];

const VECTORS: &[(&str, av::Type)] = &[
    ("FI_AV_UNSPEC", av::Type::Unspec),
    ("FI_AV_TABLE", av::Type::Table),
    ("FI_AV_MAP", av::Type::Map),
];

const WAITS: &[(&str, wait::Object)] = &[
    ("FI_WAIT_NONE", wait::Object::None),
    ("FI_WAIT_UNSPEC", wait::Object::Unspec),
    ("FI_WAIT_FD", wait::Object::Fd),
    ("FI_WAIT_YIELD", wait::Object::Yield),
    // Nobody here asks a queue for its mutex: all that is done with it are blocking reads.
    ("FI_WAIT_MUTEX_COND", wait::Object::Unspec),
];

const fn call(what: What, form: Form) -> Function {
    Function {
        what,
        form,
        data: false,
    }
}

const fn with_data(what: What, form: Form) -> Function {
    Function {
        what,
        form,
        data: true,
    }
}

const FUNCTIONS: &[(&str, Function)] = &[
    ("FT_FUNC_SEND", call(What::Send, Form::Plain)),
    ("FT_FUNC_SENDV", call(What::Send, Form::List)),
    ("FT_FUNC_SENDMSG", call(What::Send, Form::Message)),
    ("FT_FUNC_INJECT", call(What::Send, Form::Inject)),
    ("FT_FUNC_INJECTDATA", with_data(What::Send, Form::Inject)),
    ("FT_FUNC_SENDDATA", with_data(What::Send, Form::Plain)),
    ("FT_FUNC_READ", call(What::Read, Form::Plain)),
    ("FT_FUNC_READV", call(What::Read, Form::List)),
    ("FT_FUNC_READMSG", call(What::Read, Form::Message)),
    ("FT_FUNC_WRITE", call(What::Write, Form::Plain)),
    ("FT_FUNC_WRITEV", call(What::Write, Form::List)),
    ("FT_FUNC_WRITEMSG", call(What::Write, Form::Message)),
    ("FT_FUNC_WRITEDATA", with_data(What::Write, Form::Plain)),
    ("FT_FUNC_INJECT_WRITE", call(What::Write, Form::Inject)),
    (
        "FT_FUNC_INJECT_WRITEDATA",
        with_data(What::Write, Form::Inject),
    ),
    (
        "FT_FUNC_ATOMIC",
        call(What::Atomic(Family::Base), Form::Plain),
    ),
    (
        "FT_FUNC_ATOMICV",
        call(What::Atomic(Family::Base), Form::List),
    ),
    (
        "FT_FUNC_ATOMICMSG",
        call(What::Atomic(Family::Base), Form::Message),
    ),
    (
        "FT_FUNC_INJECT_ATOMIC",
        call(What::Atomic(Family::Base), Form::Inject),
    ),
    (
        "FT_FUNC_FETCH_ATOMIC",
        call(What::Atomic(Family::Fetch), Form::Plain),
    ),
    (
        "FT_FUNC_FETCH_ATOMICV",
        call(What::Atomic(Family::Fetch), Form::List),
    ),
    (
        "FT_FUNC_FETCH_ATOMICMSG",
        call(What::Atomic(Family::Fetch), Form::Message),
    ),
    (
        "FT_FUNC_COMPARE_ATOMIC",
        call(What::Atomic(Family::Compare), Form::Plain),
    ),
    (
        "FT_FUNC_COMPARE_ATOMICV",
        call(What::Atomic(Family::Compare), Form::List),
    ),
    (
        "FT_FUNC_COMPARE_ATOMICMSG",
        call(What::Atomic(Family::Compare), Form::Message),
    ),
];

#[cfg(test)]
mod tests {
    use super::super::config;
    use super::*;

    fn read(text: &str) -> anyhow::Result<Case> {
        let configs = config::parse(text)?;
        Case::read(&configs[0])
    }

    #[test]
    fn words_become_a_case() {
        let case = read(
            "{ prov_name: shm test_type: FT_TEST_BANDWIDTH test_class: FT_CAP_TAGGED \
             class_function: FT_FUNC_SENDMSG ep_type: FI_EP_RDM comp_type: FT_COMP_QUEUE \
             tx_cq_bind_flags: [FI_SELECTIVE_COMPLETION] msg_flags: [FI_COMPLETION] \
             constant_caps: [FI_ATOMICS, FI_SOURCE] mr_mode: [FI_MR_VIRT_ADDR] \
             progress: FI_PROGRESS_AUTO cq_wait_obj: FI_WAIT_FD test_flags: FT_FLAG_QUICKTEST }",
        )
        .unwrap();
        assert_eq!((case.test, case.class), (Test::Bandwidth, Class::Tagged));
        assert!(case.is_quick && case.tx.selective && case.is_reported(case.tx));
        assert_eq!(case.caps, Caps::ATOMIC | Caps::SOURCE);
        assert_eq!(case.mr_mode, Some(MrMode::VIRT_ADDR));
        assert_eq!(case.progress, Progress::Auto);
        assert_eq!(case.nonsense(), None);
        assert_eq!(case.name(), "bandwidth tsendmsg");
    }

    #[test]
    fn words_that_are_none_are_named() {
        for (text, word) in [
            ("test_type: FT_TEST_SPEED", "FT_TEST_SPEED"),
            ("mr_mode: [FI_MR_NICE]", "FI_MR_NICE"),
            ("op: FI_GUESS", "FI_GUESS"),
            ("ep_type: FI_EP_STREAM", "FI_EP_STREAM"),
            ("rx_cq_bind_flags: [FI_MOSTLY]", "FI_MOSTLY"),
        ] {
            let error = format!("{:#}", read(&format!("{{ {text} }}")).unwrap_err());
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn combinations_without_sense_are_skipped() {
        let nonsense = |text: &str| read(&format!("{{ {text} }}")).unwrap().nonsense();
        assert!(nonsense("test_class: FT_CAP_RMA class_function: FT_FUNC_SEND").is_some());
        assert!(
            nonsense("test_class: FT_CAP_ATOMIC class_function: FT_FUNC_ATOMIC op: FI_CSWAP")
                .is_some()
        );
        assert!(nonsense("rx_cq_bind_flags: [FI_SELECTIVE_COMPLETION]").is_some());
        assert!(nonsense("test_class: FT_CAP_RMA").is_none());
    }
}
