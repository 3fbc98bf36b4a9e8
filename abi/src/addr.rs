//! Addresses in C's formats: `sockaddr_in`, `sockaddr_in6`, strings.

#![expect(unsafe_code, reason = "addresses at pointers of C")]

use std::ffi::{CStr, c_char, c_void};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use selvedge::{AddrFormat, Address, Errno, Result};

use crate::pointer::array;

/// The length in bytes to which names are padded with zeros. A program that packs the names of many
/// processes into one array uses the length of its own name as the distance between two names.
const NAME_LEN: usize = 64;
const IN_LEN: usize = size_of::<libc::sockaddr_in>();
const IN6_LEN: usize = size_of::<libc::sockaddr_in6>();

/// The bytes of an address.
pub fn encode(addr: &Address) -> Vec<u8> {
    match addr {
        Address::Ip(SocketAddr::V4(v4)) => encode_in(v4),
        Address::Ip(SocketAddr::V6(v6)) => encode_in6(v6),
        Address::Raw(_, bytes) => bytes.clone(),
        other => {
            let mut bytes = other.to_bytes();
            let len = bytes.len().max(NAME_LEN);
            bytes.resize(len, 0);
            bytes
        }
    }
}

fn encode_in(addr: &SocketAddrV4) -> Vec<u8> {
    let mut bytes = vec![0; IN_LEN];
    bytes[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
    bytes[2..4].copy_from_slice(&addr.port().to_be_bytes());
    bytes[4..8].copy_from_slice(&addr.ip().octets());
    bytes
}

fn encode_in6(addr: &SocketAddrV6) -> Vec<u8> {
    let mut bytes = vec![0; IN6_LEN];
    bytes[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
    bytes[2..4].copy_from_slice(&addr.port().to_be_bytes());
    bytes[4..8].copy_from_slice(&addr.flowinfo().to_be_bytes());
    bytes[8..24].copy_from_slice(&addr.ip().octets());
    bytes[24..].copy_from_slice(&addr.scope_id().to_ne_bytes());
    bytes
}

/// Decodes an address of known length.
///
/// # Errors
/// [`Errno::Inval`] for bytes that are no address of this format.
pub fn decode(bytes: &[u8], format: AddrFormat) -> Result<Address> {
    match format {
        AddrFormat::Str => return parse_name(bytes),
        AddrFormat::Unspec
        | AddrFormat::Sockaddr
        | AddrFormat::SockaddrIn
        | AddrFormat::SockaddrIn6
        | AddrFormat::SockaddrIp => {}
        other => return Ok(Address::Raw(other, bytes.to_vec())),
    }
    match family(bytes) {
        Some(libc::AF_INET) if bytes.len() >= IN_LEN => Ok(decode_in(bytes)),
        Some(libc::AF_INET6) if bytes.len() >= IN6_LEN => Ok(decode_in6(bytes)),
        _ if format == AddrFormat::Unspec => parse_name(bytes),
        _ => Err(Errno::Inval),
    }
}

fn family(bytes: &[u8]) -> Option<i32> {
    let family = bytes.first_chunk::<2>()?;
    Some(u16::from_ne_bytes(*family).into())
}

fn parse_name(bytes: &[u8]) -> Result<Address> {
    let end = bytes.iter().position(|&byte| byte == 0);
    let text = std::str::from_utf8(&bytes[..end.unwrap_or(bytes.len())]);
    let text = text.ok().filter(|text| !text.is_empty());
    text.map(|text| Address::Str(text.to_owned()))
        .ok_or(Errno::Inval)
}

fn decode_in(bytes: &[u8]) -> Address {
    let port = u16::from_be_bytes([bytes[2], bytes[3]]);
    let ip = Ipv4Addr::new(bytes[4], bytes[5], bytes[6], bytes[7]);
    Address::Ip(SocketAddr::from((ip, port)))
}

fn decode_in6(bytes: &[u8]) -> Address {
    let word = |offset: usize| {
        [
            bytes[offset],
            bytes[offset + 1],
            bytes[offset + 2],
            bytes[offset + 3],
        ]
    };
    let port = u16::from_be_bytes([bytes[2], bytes[3]]);
    let mut octets = [0; 16];
    octets.copy_from_slice(&bytes[8..24]);
    let (flow, scope) = (u32::from_be_bytes(word(4)), u32::from_ne_bytes(word(24)));
    Address::Ip(SocketAddrV6::new(Ipv6Addr::from(octets), port, flow, scope).into())
}

/// Reads an address whose length follows from its contents, and returns it with its length in
/// bytes.
///
/// # Errors
/// [`Errno::Inval`] for bytes that are no address of this format; [`Errno::Fault`] for NULL.
///
/// # Safety
/// `ptr` is NULL or points to an address of this format.
pub unsafe fn read(ptr: *const c_void, format: AddrFormat) -> Result<(Address, usize)> {
    if ptr.is_null() {
        return Err(Errno::Fault);
    }
    if format == AddrFormat::Str {
        // SAFETY: the pointer is not NULL, so the caller vouches for the string.
        let text = unsafe { CStr::from_ptr(ptr.cast::<c_char>()) };
        let bytes = text.to_bytes_with_nul();
        return Ok((parse_name(bytes)?, bytes.len()));
    }
    // SAFETY: every socket address has a family, of two bytes.
    let bytes = unsafe { array(ptr.cast::<u8>(), 2) }?;
    let len = match family(bytes) {
        Some(libc::AF_INET) => IN_LEN,
        Some(libc::AF_INET6) => IN6_LEN,
        _ => return Err(Errno::Inval),
    };
    // SAFETY: a socket address is as long as its family defines.
    let bytes = unsafe { array(ptr.cast::<u8>(), len) }?;
    Ok((decode(bytes, format)?, len))
}

/// Reads `count` adjacent addresses. An address that cannot be read is an error in the list.
///
/// For strings, the man page asks for an array of pointers, while libfabric and its users lay out
/// the strings one behind the other, some of them padded with zeros. This function accepts both:
/// bytes that are no text are taken for pointers.
///
/// # Errors
/// [`Errno::Fault`] for NULL.
///
/// # Safety
/// `first` is NULL or points to `count` addresses of this format.
pub unsafe fn read_array(
    first: *const c_void,
    count: usize,
    format: AddrFormat,
) -> Result<Vec<Result<Address>>> {
    if count > 0 && first.is_null() {
        return Err(Errno::Fault);
    }
    let mut addrs = Vec::new();
    if format == AddrFormat::Str {
        // SAFETY: passed on from the caller.
        if count > 0 && unsafe { are_pointers(first.cast()) } {
            // SAFETY: passed on from the caller.
            let pointers = unsafe { array(first.cast::<*const c_void>(), count) }?;
            // SAFETY: passed on from the caller.
            let read_one = |&ptr: &*const c_void| unsafe { read(ptr, format) };
            let addrs = pointers.iter().map(read_one);
            return Ok(addrs.map(|addr| addr.map(|(addr, _)| addr)).collect());
        }
    }
    let mut next = first.cast::<u8>();
    for index in 0..count {
        // SAFETY: `next` is the end of the previous address.
        let addr = unsafe { read(next.cast(), format) };
        let len = match &addr {
            Ok((_, len)) => *len,
            Err(_) if format == AddrFormat::Str => 1,
            Err(_) => IN_LEN,
        };
        addrs.push(addr.map(|(addr, _)| addr));
        next = next.wrapping_add(len);
        if format == AddrFormat::Str && index + 1 < count {
            // SAFETY: another string follows, so the zeros before it are the program's memory.
            next = unsafe { skip_zeros(next) };
        }
    }
    Ok(addrs)
}

/// Returns the first byte from `ptr` on that is not zero: the beginning of the next string.
///
/// # Safety
/// A string follows `ptr`, perhaps behind zeros.
unsafe fn skip_zeros(mut ptr: *const u8) -> *const u8 {
    // SAFETY: passed on from the caller.
    while unsafe { *ptr } == 0 {
        ptr = ptr.wrapping_add(1);
    }
    ptr
}

/// Returns whether `ptr` points to an array of pointers rather than to the first string. A pointer
/// has a byte that no text has.
///
/// # Safety
/// `ptr` points to a string or to a pointer.
unsafe fn are_pointers(ptr: *const u8) -> bool {
    for index in 0..size_of::<usize>() {
        // SAFETY: the previous bytes belong to a text that continues, or to a pointer.
        match unsafe { *ptr.wrapping_add(index) } {
            0 => return false,
            b' '..=b'~' => {}
            _ => return true,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;

    #[test]
    fn socket_addresses_survive_the_round_trip() {
        for text in ["1.2.3.4:5", "[fe80::1]:65535", "[::]:0"] {
            let addr: Address = text.parse().expect("an address");
            let bytes = encode(&addr);
            assert_eq!(decode(&bytes, AddrFormat::Sockaddr), Ok(addr.clone()));
            assert_eq!(decode(&bytes, AddrFormat::Unspec), Ok(addr));
            assert_eq!(
                decode(&bytes[..8], AddrFormat::SockaddrIn),
                Err(Errno::Inval)
            );
        }
    }

    #[test]
    fn short_names_are_padded_and_long_ones_are_not_cut() {
        let short = Address::Str("fi_shm://1".into());
        assert_eq!(encode(&short).len(), NAME_LEN);
        assert_eq!(decode(&encode(&short), AddrFormat::Str), Ok(short));
        let long = Address::Str("x".repeat(NAME_LEN));
        assert_eq!(encode(&long).len(), NAME_LEN + 1);
    }

    fn read_all(first: *const c_void, count: usize) -> Vec<Result<Address>> {
        // SAFETY: the tests lay out `count` names.
        unsafe { read_array(first, count, AddrFormat::Str) }.expect("not NULL")
    }

    fn addrs_of(names: &[&str]) -> Vec<Result<Address>> {
        let addr_of = |name: &&str| Ok(Address::Str((*name).to_owned()));
        names.iter().map(addr_of).collect()
    }

    #[test]
    fn strings_are_read_packed_padded_and_behind_pointers() {
        let packed = b"fi_shm://1\0fi_shm://23\0";
        let expected = addrs_of(&["fi_shm://1", "fi_shm://23"]);
        assert_eq!(read_all(packed.as_ptr().cast(), 2), expected);
        let mut padded = encode(&Address::Str("fi_shm://1".into()));
        padded.extend(encode(&Address::Str("fi_shm://23".into())));
        assert_eq!(read_all(padded.as_ptr().cast(), 2), expected);
        let pointers = [packed.as_ptr(), packed[11..].as_ptr()];
        assert_eq!(read_all(pointers.as_ptr().cast(), 2), expected);
    }

    #[test]
    fn null_addresses_are_a_fault() {
        // SAFETY: NULL is only compared.
        let read = unsafe { read_array(ptr::null(), 1, AddrFormat::Str) };
        assert_eq!(read, Err(Errno::Fault));
    }
}
