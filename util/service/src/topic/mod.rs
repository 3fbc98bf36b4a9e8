//! Publish and subscribe: a publisher keeps the last publications, and each subscriber takes them
//! at its own speed.
//!
//! A subscriber keeps requests outstanding, and a publication is the response to one of them. The
//! publisher therefore never waits for a subscriber, and sends a subscriber no more than the
//! subscriber has room for.

mod publication;
mod publisher;
mod subscriber;

pub use self::publication::{Publication, PublicationMut};
pub use self::publisher::Publisher;
pub use self::subscriber::{
    NextPublication, Start, Subscriber, Subscribing, subscribe, subscribe_with,
};
