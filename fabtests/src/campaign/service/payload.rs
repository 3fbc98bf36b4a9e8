//! The bytes of requests and responses, which both sides compute from the request's number.

use anyhow::ensure;

use super::journal::Request;

/// Sizes of a payload: in a frame, in an injected frame and announced.
const SIZES: [usize; 5] = [16, 64, 3000, 5000, 100_000];

/// The payload of a request.
pub(super) fn request(request: Request) -> Vec<u8> {
    payload(request, 0)
}

/// The payload of the response to a request by the server with this number.
pub(super) fn response(request: Request, server: u64) -> Vec<u8> {
    payload(request, server)
}

/// Two words, the request and the server, and bytes that depend on both.
fn payload(request: Request, server: u64) -> Vec<u8> {
    let seed = (request.0 ^ server.rotate_left(48)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let size = SIZES[(seed >> 32) as usize % SIZES.len()];
    let mut bytes = Vec::with_capacity(size + 8);
    bytes.extend(request.0.to_le_bytes());
    bytes.extend(server.to_le_bytes());
    for number in 0_u64.. {
        if bytes.len() >= size {
            break;
        }
        bytes.extend((seed ^ number.wrapping_mul(0x0101_0101)).to_le_bytes());
    }
    bytes.truncate(size);
    bytes
}

/// Checks a payload of a request; returns the request.
///
/// # Errors
/// When the bytes are not those of a request.
pub(super) fn check_request(bytes: &[u8]) -> anyhow::Result<Request> {
    let (number, server) = words(bytes)?;
    ensure!(
        server == 0 && bytes == request(Request(number)),
        "the request {number:#x} of {} bytes is corrupted",
        bytes.len()
    );
    Ok(Request(number))
}

/// Checks a payload of the response to a request; returns the server's number.
///
/// # Errors
/// When the bytes are not those of a response to this request.
pub(super) fn check_response(bytes: &[u8], request: Request) -> anyhow::Result<u64> {
    let (number, server) = words(bytes)?;
    ensure!(
        number == request.0 && server > 0 && bytes == response(request, server),
        "{request:?} has a response of {} bytes for {number:#x}",
        bytes.len()
    );
    Ok(server)
}

fn words(bytes: &[u8]) -> anyhow::Result<(u64, u64)> {
    let (words, _) = bytes.as_chunks::<8>();
    ensure!(words.len() >= 2, "a payload of {} bytes", bytes.len());
    Ok((u64::from_le_bytes(words[0]), u64::from_le_bytes(words[1])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_response_to_the_request_is_accepted() {
        let (first, other) = (Request::new(1, 2), Request::new(1, 3));
        let mut bytes = response(first, 5);
        assert_eq!(check_response(&bytes, first).unwrap(), 5);
        assert!(check_response(&bytes, other).is_err());
        assert_eq!(check_request(&request(first)).unwrap(), first);
        *bytes.last_mut().unwrap() ^= 1;
        assert!(check_response(&bytes, first).is_err());
    }
}
