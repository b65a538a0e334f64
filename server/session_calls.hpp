// How a session asks its engine.
#pragma once

#include "session.hpp"
#include "store_call.hpp"

namespace holdfast::server {

template <class T, class Begin>
void session::ask(Begin begin, std::function<void(result<T>)> then) {
  ++flights_;
  store_call<T>::ask(around_.loop, std::move(begin),
                     [self = shared_from_this(), then = std::move(then)](result<T> outcome) {
                       then(std::move(outcome));
                       self->landed();
                     });
}

}  // namespace holdfast::server
