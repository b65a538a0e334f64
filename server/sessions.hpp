// Sessions of clients that speak the engine contract over HTTP: http:// and https:// as a store's address.
#pragma once

namespace holdfast::server {

class router;
struct service;

void add_session_routes(router& to, service& of);

}  // namespace holdfast::server
