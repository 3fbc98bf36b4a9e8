//! Typed messages.

use std::thread;

use selvedge_service::{Error, Event, Message};

use crate::{addresses, bounded, connected, name};

fn next_message(listener: &selvedge_service::Listener) -> Message {
    match listener.event().wait().unwrap() {
        Event::Message(_, message) => message,
        event => panic!("{event:?}"),
    }
}

#[cfg(feature = "postcard")]
mod values {
    use super::*;
    use serde::{Deserialize, Serialize};

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    enum Command<'a> {
        Set { key: &'a str, value: Vec<u32> },
        Clear,
    }

    #[test]
    fn values_arrive_as_they_were_sent_and_requested() {
        for address in addresses() {
            bounded(|| {
                let (listener, connection) = connected(&address);
                thread::scope(|scope| {
                    scope.spawn(move || {
                        let values = (0..40_000).collect();
                        let set = Command::Set {
                            key: "k",
                            value: values,
                        };
                        connection.send_value(&set).wait().unwrap();
                        let response = connection.request_value(&Command::Clear).wait().unwrap();
                        assert_eq!(response.decode::<(u8, String)>().unwrap(), (7, "ok".into()));
                    });
                    let message = next_message(&listener);
                    let Command::Set { key, value } = message.decode().unwrap() else {
                        panic!("another value");
                    };
                    assert!(key == "k" && value.len() == 40_000 && value[39_999] == 39_999);
                    let event = listener.event().wait().unwrap();
                    let Event::Request(request) = event else {
                        panic!("{event:?}");
                    };
                    assert_eq!(
                        request.message().decode::<Command<'_>>(),
                        Ok(Command::Clear)
                    );
                    request.respond_value(&(7_u8, "ok"));
                });
            });
        }
    }

    #[test]
    fn bytes_that_are_no_value_are_an_error_with_the_type_and_the_reason() {
        bounded(|| {
            let (listener, connection) = connected(&name());
            thread::scope(|scope| {
                scope.spawn(move || {
                    connection.send(b"\x00").wait().unwrap();
                    connection.send(b"\x01rest").wait().unwrap();
                });
                for (len, reason) in [(1, "end of buffer"), (5, "4 bytes follow the value")] {
                    let message = next_message(&listener);
                    let error = message.decode::<Command<'_>>().unwrap_err();
                    assert!(matches!(&error, Error::Decode { .. }), "{error}");
                    let text = error.to_string();
                    for part in ["Command", &format!("{len} bytes"), reason] {
                        assert!(text.contains(part), "{text}");
                    }
                }
            });
        });
    }
}

#[cfg(feature = "bytemuck")]
#[test]
fn plain_data_is_sent_and_read_without_a_copy() {
    for address in addresses() {
        bounded(|| {
            let (listener, connection) = connected(&address);
            thread::scope(|scope| {
                scope.spawn(move || {
                    let mut message = connection.message(100_000 * 8).unwrap();
                    for (index, value) in message
                        .plain_slice_mut::<f64>()
                        .unwrap()
                        .iter_mut()
                        .enumerate()
                    {
                        *value = index as f64;
                    }
                    connection.send_message(message).wait().unwrap();
                    connection
                        .send_plain(&[1_u128, 2, u128::MAX])
                        .wait()
                        .unwrap();
                    connection.send(b"odd").wait().unwrap();
                });
                let message = next_message(&listener);
                let values = message.plain_slice::<f64>().unwrap();
                assert!(values.len() == 100_000 && values[99_999] == 99_999.0);
                assert_eq!(values.as_ptr().cast(), message.as_ptr());
                let message = next_message(&listener);
                assert_eq!(message.plain::<[u128; 3]>().unwrap()[2], u128::MAX);
                let odd = next_message(&listener);
                let error = odd.plain::<u32>().unwrap_err();
                let text = error.to_string();
                assert!(text.contains("3 bytes") && text.contains("u32"), "{text}");
                assert!(odd.plain_slice::<u16>().is_err());
            });
        });
    }
}
