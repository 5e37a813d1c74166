//! Listens on an address, whichever family the pod has.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};

use socket2::{Domain, Protocol, Socket, Type};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;

/// Listens on `address`. `0.0.0.0` means every address of the pod, which may be an IPv6 address only, so it includes IPv6
/// where the machine has it. The listener is non-blocking.
///
/// # Errors
///
/// The address is in use, is not one of this machine's, or its port takes a privilege.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    if address.ip() == Ipv4Addr::UNSPECIFIED {
        let every = SocketAddr::from((Ipv6Addr::UNSPECIFIED, address.port()));
        match bound(every) {
            Ok(socket) => return accepting(socket),
            // Another program has the port, and would have the IPv4 one as well.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Err(error),
            // A machine without IPv6.
            Err(_) => {}
        }
    }
    accepting(bound(address)?)
}

fn bound(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        // By default a machine's settings decide it.
        socket.set_only_v6(address.ip() != Ipv6Addr::UNSPECIFIED)?;
    }
    // Otherwise a container that starts again right after it ended finds its port in use.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

fn accepting(socket: Socket) -> io::Result<TcpListener> {
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unspecified_address_serves_ipv4_and_ipv6() {
        // Bound, and not listening: tests listen on loopback addresses only.
        let Ok(every) = bound("[::]:0".parse().unwrap()) else { return };
        assert!(!every.only_v6().unwrap());
    }

    #[test]
    fn specific_address_is_bound_and_port_in_use_is_an_error() {
        let first = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = first.local_addr().unwrap();
        assert!(address.ip().is_loopback() && address.is_ipv4());
        assert!(std::net::TcpStream::connect(address).is_ok());
        assert_eq!(listen(address).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }
}
