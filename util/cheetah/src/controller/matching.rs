//! Matching handlers: messages and requests are matched by sender and tag, in any order of arrival.

use std::fmt;
use std::rc::Rc;

use super::channel::Channel;
use super::{Action, Controller, FunctionId};
use crate::Result;
use crate::net::wire::Port;
use crate::serialize::{Cheetah, Serialize};

/// Sends and requests that are matched by context and tag.
///
/// All contexts must construct their handlers in the same order. Messages for a handler that is not
/// constructed yet are queued. Each request takes one message. Messages of one sender and tag match
/// requests in order.
///
/// # Examples
/// ```no_run
/// use selvedge_cheetah::{Config, Controller, MatchingHandler};
///
/// let controller = Controller::open(&Config::new().fork(2))?;
/// let halo = MatchingHandler::new(&controller)?;
/// let other = 1 - controller.mycontext();
/// halo.send(other, 7, &vec![1.0_f64, 2.0])?;
/// halo.request::<Vec<f64>>(other, 7, |_, row| println!("{row:?}"))?;
/// controller.barrier()?;
/// controller.finalize()?;
/// # Ok::<(), selvedge_cheetah::Error>(())
/// ```
pub struct MatchingHandler {
    controller: Controller,
    number: u32,
    channel: Rc<Channel<Action>>,
}

/// Size in bytes from which on messages are packed into special memory. Smaller messages are packed
/// into ordinary memory and sent eagerly, because reading special memory costs another round trip.
const SPECIAL_FROM: usize = 2048;

impl MatchingHandler {
    /// Constructs the next handler.
    ///
    /// # Errors
    /// [`crate::Error::Finalized`].
    pub fn new(controller: &Controller) -> Result<Self> {
        let number = controller.core().channel("matching")?;
        let channel = Rc::new(Channel::new());
        controller.attach(number, Rc::clone(&channel));
        Ok(Self {
            controller: controller.clone(),
            number,
            channel,
        })
    }

    /// The controller that the handler was constructed on.
    pub fn controller(&self) -> &Controller {
        &self.controller
    }

    /// Sends a value, or a tuple of up to four, to this handler in context `to`. The value is
    /// packed before the call returns.
    ///
    /// # Errors
    /// When there is no such context, when it has failed, or after finalize.
    pub fn send<T: Serialize + ?Sized>(&self, to: usize, tag: i32, value: &T) -> Result {
        self.send_with::<Cheetah, T>(to, tag, value)
    }

    /// As [`Self::send`], in the format of another tag of [`Serialize`].
    ///
    /// # Errors
    /// As [`Self::send`].
    pub fn send_with<Tag, T: Serialize<Tag> + ?Sized>(
        &self,
        to: usize,
        tag: i32,
        value: &T,
    ) -> Result {
        let port = Port::Channel {
            channel: self.number,
            tag,
        };
        let size = value.size();
        if size >= SPECIAL_FROM && to != self.controller.mycontext() {
            let mut parcel = self.controller.reserve(to, size)?;
            value.pack(parcel.bytes_mut());
            return self.controller.commit_to(port, parcel);
        }
        let mut buffer = [0_u64; SPECIAL_FROM / 8];
        let mut large = Vec::new();
        let buffer = match buffer.get_mut(..size / 8) {
            Some(buffer) => buffer,
            None => {
                large.resize(size / 8, 0);
                &mut large[..]
            }
        };
        let buffer = bytemuck::cast_slice_mut(buffer);
        value.pack(buffer);
        self.controller.core().invoke(to, port, buffer)?;
        self.controller.dispatch_periodically()
    }

    /// Requests the next unmatched message of a context and tag. The callback runs with a view of
    /// the message, in this call or a later one.
    ///
    /// # Errors
    /// When there is no such context, or after finalize.
    pub fn request<T: Serialize + ?Sized>(
        &self,
        from: usize,
        tag: i32,
        callback: impl FnOnce(&Controller, T::View<'_>) + 'static,
    ) -> Result {
        self.request_with::<Cheetah, T>(from, tag, callback)
    }

    /// As [`Self::request`], in the format of another tag of [`Serialize`].
    ///
    /// # Errors
    /// As [`Self::request`].
    pub fn request_with<Tag, T: Serialize<Tag> + ?Sized>(
        &self,
        from: usize,
        tag: i32,
        callback: impl FnOnce(&Controller, T::View<'_>) + 'static,
    ) -> Result {
        self.controller.core().check(from)?;
        let action: Action = Box::new(move |controller, bytes| match T::unpack(bytes) {
            Ok((view, _)) => callback(controller, view),
            Err(error) => controller.core().report(crate::Error::Garbled(format!(
                "a message with tag {tag} of context {from}: {error}"
            ))),
        });
        if let Some(ready) = self.channel.request(from, tag, action) {
            self.controller.ready(ready);
        }
        Ok(())
    }

    /// Number of requests that wait for a message of context `from`, or of any context.
    pub fn actions(&self, from: Option<usize>) -> usize {
        self.channel.actions(from)
    }

    /// Number of messages of context `from`, or of any context, that wait for a request.
    pub fn messages(&self, from: Option<usize>) -> usize {
        self.channel.messages(from)
    }
}

impl Drop for MatchingHandler {
    fn drop(&mut self) {
        self.controller.detach(self.number);
    }
}

impl fmt::Debug for MatchingHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "handler {} of {:?}", self.number, self.controller)
    }
}

/// A registered function with the type of its argument.
#[derive(Debug)]
pub struct Function<T: ?Sized> {
    id: FunctionId,
    arg_type: std::marker::PhantomData<fn(&T)>,
}

impl<T: ?Sized> Clone for Function<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: ?Sized> Copy for Function<T> {}

impl<T: ?Sized> Function<T> {
    /// The function without its type.
    pub fn id(&self) -> FunctionId {
        self.id
    }
}

impl Controller {
    /// Registers a function that takes a value, as [`Self::register`]. The registered name includes
    /// the type, so that contexts with another type fail at the first barrier.
    ///
    /// # Errors
    /// [`crate::Error::Finalized`].
    pub fn register_typed<T: Serialize + ?Sized>(
        &self,
        name: &str,
        mut function: impl FnMut(&Self, usize, T::View<'_>) + 'static,
    ) -> Result<Function<T>> {
        let name = format!("{name} of {}", std::any::type_name::<T>());
        let id = self.register(&name, move |controller, call| match T::unpack(call.bytes) {
            Ok((view, _)) => function(controller, call.from, view),
            Err(error) => controller.core().report(crate::Error::Garbled(format!(
                "arguments of function {} from context {}: {error}",
                call.id, call.from
            ))),
        })?;
        Ok(Function {
            id,
            arg_type: std::marker::PhantomData,
        })
    }

    /// Invokes a function in another context with a value.
    ///
    /// # Errors
    /// As [`Self::ainvoke`].
    pub fn ainvoke_typed<T: Serialize + ?Sized>(
        &self,
        to: usize,
        function: Function<T>,
        value: &T,
    ) -> Result {
        let mut buffer = vec![0_u64; value.size() / 8];
        let buffer = bytemuck::cast_slice_mut(&mut buffer);
        value.pack(buffer);
        self.ainvoke(to, function.id, buffer)
    }
}
