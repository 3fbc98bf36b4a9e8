// Cheetah: one-sided messaging for programs without threads, in the classes of Cheetah 1.1.
//
// A program runs as several contexts. A context puts bytes into the memory of another one, gets bytes
// from there, and invokes functions there. A bell is an integer that is incremented when an operation
// completes. Progress happens only in calls: see docs/CHEETAH.md.
//
// Compiles as C++98 and later. The header throws no exceptions: an error goes to the function that was
// passed to Cheetah::onError(), and without one ends the program with a message and exit status 1.
// poll() and wait() report failed operations; a barrier, finalize() and the destructor of the last
// controller report those that neither has reported.

#ifndef CHEETAH_CHEETAH_H
#define CHEETAH_CHEETAH_H

#include <stddef.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include <cstring>
#include <deque>
#include <iostream>
#include <map>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "../cheetah.h"

namespace Cheetah {

// ---------------------------------------------------------------------------------------------------
// Serialisation: the size first, then packing in place; unpacking points into the message.

// The default serializer: a value as it lies in memory.
struct CHEETAH {};
// A count, and as many elements.
struct ARRAY {};

namespace detail {

inline int rounded(size_t len) { return static_cast<int>((len + 7) & ~static_cast<size_t>(7)); }

template <class T> struct Plain { typedef T type; };
template <class T> struct Plain<T &> { typedef T type; };
template <class T> struct Plain<const T> { typedef T type; };
template <class T> struct Plain<const T &> { typedef T type; };

} // namespace detail

// Specialise it for types that are more than their bytes: size() is a multiple of 8.
template <class Tag, class T> class Serialize;

template <class T> class Serialize<CHEETAH, T> {
public:
    static int size(const T &) { return detail::rounded(sizeof(T)); }
    static int pack(const T &value, char *buffer)
    {
        new (static_cast<void *>(buffer)) T(value);
        return detail::rounded(sizeof(T));
    }
    // Points into the message.
    static int unpack(T *&value, char *buffer)
    {
        value = static_cast<T *>(static_cast<void *>(buffer));
        return detail::rounded(sizeof(T));
    }
    static void cleanup(T *value) { value->~T(); }
};

template <class T> class Serialize<ARRAY, T> {
public:
    static int size(const T *, const int &count)
    {
        return 8 + detail::rounded(static_cast<size_t>(count) * sizeof(T));
    }
    static int pack(const T *values, char *buffer, const int &count)
    {
        Serialize<CHEETAH, int>::pack(count, buffer);
        T *first = static_cast<T *>(static_cast<void *>(buffer + 8));
        for (int i = 0; i < count; ++i)
            new (static_cast<void *>(first + i)) T(values[i]);
        return size(values, count);
    }
    static int unpack(T *&values, char *buffer, int &count)
    {
        count = *static_cast<int *>(static_cast<void *>(buffer));
        values = static_cast<T *>(static_cast<void *>(buffer + 8));
        return size(values, count);
    }
    static void cleanup(T *) {}
};

// ---------------------------------------------------------------------------------------------------
// Errors

// A function that is called with the text of an error. It may throw, or return to continue. An
// exception that it throws from a destructor ends the program with the text.
typedef void (*ErrorHandler)(const char *sentence);

namespace detail {

inline ErrorHandler &errorHandler()
{
    static ErrorHandler handler = 0;
    return handler;
}

inline void endProgram(const char *sentence)
{
    std::cout.flush();
    fflush(0);
    fprintf(stderr, "Cheetah: %s\n", sentence);
    fflush(0);
    _exit(1);
}

inline void failed(const char *sentence)
{
    if (errorHandler())
        errorHandler()(sentence);
    else
        endProgram(sentence);
}

// As failed(), where no exception may leave.
inline void failedInDestructor(const char *sentence)
{
#ifdef __EXCEPTIONS
    try {
        failed(sentence);
    } catch (...) {
        endProgram(sentence);
    }
#else
    failed(sentence);
#endif
}

// Returns a status of the library; passes the text of an error to the handler.
inline int checked(int status)
{
    if (status < 0)
        failed(cheetah_error());
    return status;
}

inline long milliseconds()
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<long>(now.tv_sec) * 1000 + now.tv_nsec / 1000000;
}

} // namespace detail

// Sets the error handler, and returns the previous one; with 0, an error ends the program.
inline ErrorHandler onError(ErrorHandler handler)
{
    ErrorHandler before = detail::errorHandler();
    detail::errorHandler() = handler;
    return before;
}

// A function that other contexts invoke. Its arguments are the calling context, the function's number,
// and the bytes, which are freed when it returns.
typedef void (*Handler_t)(int who, int tag, void *buf, int len);

// A function of one to three values, by its type.
template <class A1> struct Function1 { int id; };
template <class A1, class A2> struct Function2 { int id; };
template <class A1, class A2, class A3> struct Function3 { int id; };

namespace detail {

// Runs a registered function when it is invoked.
class Invoker {
public:
    virtual ~Invoker() {}
    virtual void run(int who, int id, char *buffer, int len) = 0;
};

class PlainInvoker : public Invoker {
public:
    explicit PlainInvoker(Handler_t handler) : handler_(handler) {}
    virtual void run(int who, int id, char *buffer, int len) { handler_(who, id, buffer, len); }

private:
    Handler_t handler_;
};

template <class A1> class Invoker1 : public Invoker {
public:
    explicit Invoker1(void (*handler)(int, A1 &)) : handler_(handler) {}
    virtual void run(int who, int, char *buffer, int)
    {
        A1 *a1;
        Serialize<CHEETAH, A1>::unpack(a1, buffer);
        handler_(who, *a1);
        Serialize<CHEETAH, A1>::cleanup(a1);
    }

private:
    void (*handler_)(int, A1 &);
};

template <class A1, class A2> class Invoker2 : public Invoker {
public:
    explicit Invoker2(void (*handler)(int, A1 &, A2 &)) : handler_(handler) {}
    virtual void run(int who, int, char *buffer, int)
    {
        A1 *a1;
        A2 *a2;
        buffer += Serialize<CHEETAH, A1>::unpack(a1, buffer);
        Serialize<CHEETAH, A2>::unpack(a2, buffer);
        handler_(who, *a1, *a2);
        Serialize<CHEETAH, A1>::cleanup(a1);
        Serialize<CHEETAH, A2>::cleanup(a2);
    }

private:
    void (*handler_)(int, A1 &, A2 &);
};

template <class A1, class A2, class A3> class Invoker3 : public Invoker {
public:
    explicit Invoker3(void (*handler)(int, A1 &, A2 &, A3 &)) : handler_(handler) {}
    virtual void run(int who, int, char *buffer, int)
    {
        A1 *a1;
        A2 *a2;
        A3 *a3;
        buffer += Serialize<CHEETAH, A1>::unpack(a1, buffer);
        buffer += Serialize<CHEETAH, A2>::unpack(a2, buffer);
        Serialize<CHEETAH, A3>::unpack(a3, buffer);
        handler_(who, *a1, *a2, *a3);
        Serialize<CHEETAH, A1>::cleanup(a1);
        Serialize<CHEETAH, A2>::cleanup(a2);
        Serialize<CHEETAH, A3>::cleanup(a3);
    }

private:
    void (*handler_)(int, A1 &, A2 &, A3 &);
};

// A request of a matching handler: the function that its message runs.
class Action {
public:
    virtual ~Action() {}
    virtual void run(char *buffer) = 0;
};

// The requests and messages of one matching handler that wait for their counterparts.
class Matcher {
public:
    typedef std::pair<int, int> Key;

    ~Matcher()
    {
        for (Actions::iterator at = actions.begin(); at != actions.end(); ++at)
            for (size_t i = 0; i < at->second.size(); ++i)
                delete at->second[i];
        for (Messages::iterator at = messages.begin(); at != messages.end(); ++at)
            for (size_t i = 0; i < at->second.size(); ++i)
                cheetah_release(&at->second[i]);
    }

    template <class Queues> static int count(const Queues &queues, int from)
    {
        size_t all = 0;
        for (typename Queues::const_iterator at = queues.begin(); at != queues.end(); ++at)
            if (from < 0 || at->first.first == from)
                all += at->second.size();
        return static_cast<int>(all);
    }

    typedef std::map<Key, std::deque<Action *> > Actions;
    typedef std::map<Key, std::deque<cheetah_message> > Messages;
    Actions actions;
    Messages messages;
};

// A request with its matching message.
struct Ready {
    Action *action;
    cheetah_message message;
};

// The texts of errors that are reported later, each one once: only the first ones, if there are many.
class Report {
public:
    Report() : has_more_(false) {}

    // Adds a status of the library; returns whether it is an error.
    bool add(int status)
    {
        if (status >= 0)
            return false;
        std::string sentence(cheetah_error());
        for (size_t i = 0; i < sentences_.size(); ++i)
            if (sentences_[i] == sentence)
                return true;
        if (sentences_.size() < MAX_SENTENCES)
            sentences_.push_back(sentence);
        else
            has_more_ = true;
        return true;
    }

    void pass(ErrorHandler report)
    {
        if (sentences_.empty())
            return;
        std::string all(sentences_[0]);
        for (size_t i = 1; i < sentences_.size(); ++i)
            all += "; " + sentences_[i];
        if (has_more_)
            all += "; and more";
        sentences_.clear();
        report(all.c_str());
    }

private:
    enum { MAX_SENTENCES = 8 };
    std::vector<std::string> sentences_;
    bool has_more_;
};

// The state that all copies of a controller share.
class ControllerImpl {
public:
    ControllerImpl(int &argc, char **&argv) : references(1), context(0), inside(false), calls(0)
    {
        // Flushes buffered output, which would be printed by every process after a fork.
        std::cout.flush();
        std::cerr.flush();
        if (cheetah_open(&argc, &argv, &context) < 0) {
            context = 0;
            failed(cheetah_error());
        }
    }

    ~ControllerImpl()
    {
        if (context && !cheetah_is_finalized(context))
            finalize(failedInDestructor);
        for (size_t i = 0; i < functions.size(); ++i)
            delete functions[i];
        for (size_t i = 0; i < ready.size(); ++i) {
            delete ready[i].action;
            cheetah_release(&ready[i].message);
        }
        for (size_t i = 0; i < early.size(); ++i)
            cheetah_release(&early[i]);
        cheetah_close(context);
    }

    // Moves bytes, and runs invoked functions.
    void step()
    {
        checked(cheetah_progress(context));
        dispatch();
    }

    // As step(), and reports a failure.
    void poll()
    {
        step();
        checked(cheetah_failure(context));
    }

    // Called by functions that do not poll.
    void dispatchOccasionally()
    {
        if (++calls % 16 == 0)
            dispatch();
    }

    void dispatch()
    {
        if (inside || !context)
            return;
        for (int ran = 0; ran < 1024; ++ran) {
            cheetah_message message;
            if (!ready.empty()) {
                Ready next = ready.front();
                ready.pop_front();
                run(next.action, next.message);
            } else if (cheetah_next(context, &message) == 1) {
                deliver(message);
            } else {
                return;
            }
        }
    }

    // Registers a matching handler, and delivers the messages that have arrived for it.
    int attach(Matcher *matcher)
    {
        int number = checked(cheetah_channel(context, "matching"));
        matchers.push_back(matcher);
        std::deque<cheetah_message> waiting;
        waiting.swap(early);
        for (size_t i = 0; i < waiting.size(); ++i)
            deliver(waiting[i]);
        return number;
    }

    void detach(int number) { matchers[static_cast<size_t>(number)] = 0; }

    void mustWait(const char *operation, ErrorHandler report = failed) const
    {
        if (inside) {
            std::string sentence(operation);
            report((sentence + " within a handler: a handler must not wait").c_str());
        }
    }

    bool barrierDone()
    {
        step();
        int done = checked(cheetah_barrier_done(context));
        if (done == 1)
            checked(cheetah_unreported_failure(context));
        return done != 0;
    }

    void barrier(int millis)
    {
        mustWait("barrier");
        if (checked(cheetah_barrier_begin(context)) < 0)
            return;
        long started = 0;
        while (!barrierDone())
            if (!sleepOrTimeOut("barrier", millis, started, 1))
                return;
    }

    // Waits until the bell has the value; 0 milliseconds for no timeout. Returns whether it has.
    bool wait(int *bell, int value, int millis)
    {
        volatile int *rung = bell;
        if (*rung >= value)
            return true;
        mustWait("wait");
        long started = 0;
        for (;;) {
            step();
            if (*rung >= value)
                return true;
            if (checked(cheetah_hopeless(context, bell)) < 0)
                return false;
            if (!sleepOrTimeOut("wait", millis, started, 0))
                return false;
        }
    }

    // Reports failures after all contexts have finalized, so that this context's error ends no other.
    void finalize(ErrorHandler report = failed)
    {
        mustWait("finalize", report);
        Report failures;
        // If finalizing fails, the forked contexts may not end, so failures are reported before the wait.
        if (!finishTogether(failures))
            failures.pass(report);
        failures.add(cheetah_wait_for_children(context));
        failures.pass(report);
    }

    int references;
    cheetah_context *context;
    std::vector<Invoker *> functions;
    std::vector<Matcher *> matchers;
    std::deque<Ready> ready;

private:
    ControllerImpl(const ControllerImpl &);
    ControllerImpl &operator=(const ControllerImpl &);

    bool finishTogether(Report &failures)
    {
        int limit = cheetah_limit(context);
        for (long started = 0;;) {
            while (failures.add(cheetah_unreported_failure(context)))
                continue;
            int done = cheetah_finalize_step(context);
            dispatch();
            if (done == 1)
                return true;
            if (failures.add(done))
                return false;
            if (!sleepInTime(limit, started)) {
                failures.add(cheetah_timed_out(context, "finalize", limit, 1));
                return false;
            }
        }
    }

    bool sleepOrTimeOut(const char *operation, int millis, long &started, int is_barrier)
    {
        bool is_in_time = sleepInTime(millis, started);
        if (!is_in_time)
            checked(cheetah_timed_out(context, operation, millis, is_barrier));
        return is_in_time;
    }

    // Parks until there may be an event; false after the timeout, if there is one.
    bool sleepInTime(int millis, long &started)
    {
        if (started == 0)
            started = milliseconds();
        long left = millis > 0 ? started + millis - milliseconds() : 500;
        if (left <= 0)
            return false;
        cheetah_rest(context, static_cast<int>(left < 500 ? left : 500));
        return true;
    }

    void deliver(cheetah_message &message)
    {
        size_t number = static_cast<size_t>(message.id);
        if (message.kind == CHEETAH_FUNCTION) {
            if (number < functions.size()) {
                Inside now(inside);
                Held held(message);
                functions[number]->run(message.from, message.id,
                                       static_cast<char *>(message.bytes),
                                       static_cast<int>(message.len));
            } else {
                cheetah_no_function(context, message.from, message.id);
                cheetah_release(&message);
            }
        } else if (number >= matchers.size()) {
            early.push_back(message);
        } else if (!matchers[number]) {
            cheetah_release(&message);
        } else {
            match(*matchers[number], message);
        }
    }

    void match(Matcher &matcher, cheetah_message &message)
    {
        Matcher::Key key(message.from, message.tag);
        Matcher::Actions::iterator at = matcher.actions.find(key);
        if (at == matcher.actions.end()) {
            matcher.messages[key].push_back(message);
            return;
        }
        Action *action = at->second.front();
        at->second.pop_front();
        if (at->second.empty())
            matcher.actions.erase(at);
        Ready now = {action, message};
        // Within a handler, the match is queued; otherwise it runs at once.
        if (inside)
            ready.push_back(now);
        else
            run(now.action, now.message);
    }

    void run(Action *action, cheetah_message &message)
    {
        Inside now(inside);
        Held held(message);
        Owned owned(action);
        action->run(static_cast<char *>(message.bytes));
    }

    struct Inside {
        explicit Inside(bool &flag) : flag_(flag) { flag_ = true; }
        ~Inside() { flag_ = false; }
        bool &flag_;
    };
    struct Held {
        explicit Held(cheetah_message &message) : message_(message) {}
        ~Held() { cheetah_release(&message_); }
        cheetah_message &message_;
    };
    struct Owned {
        explicit Owned(Action *action) : action_(action) {}
        ~Owned() { delete action_; }
        Action *action_;
    };

    std::deque<cheetah_message> early;
    bool inside;
    unsigned calls;
};

// Packs values in the memory they are sent from: special memory, if they are large.
class Packer {
public:
    Packer(ControllerImpl *impl, int to, int size)
        : impl_(impl), to_(to), size_(size), parcel_(0), at_(0)
    {
        if (size >= SPECIAL_FROM && to != cheetah_mycontext(impl->context)) {
            void *room = 0;
            checked(cheetah_reserve(impl->context, to,
                                            static_cast<size_t>(size), &parcel_, &room));
            at_ = static_cast<char *>(room);
        } else if (size > static_cast<int>(sizeof small_)) {
            large_.resize(static_cast<size_t>(size) / sizeof(double) + 1);
            at_ = static_cast<char *>(static_cast<void *>(&large_[0]));
        } else {
            at_ = static_cast<char *>(static_cast<void *>(small_));
        }
        first_ = at_;
    }

    ~Packer()
    {
        if (parcel_)
            cheetah_abandon(impl_->context, parcel_);
    }

    template <class T> void add(const T &value)
    {
        at_ += Serialize<CHEETAH, T>::pack(value, at_);
    }
    template <class Tag, class T> void addWith(const Tag &, const T &value)
    {
        at_ += Serialize<Tag, T>::pack(value, at_);
    }
    template <class T> void addArray(const T *values, int count)
    {
        at_ += Serialize<ARRAY, T>::pack(values, at_, count);
    }

    void send(int kind, int id, int tag)
    {
        if (at_ - first_ > size_) {
            failed("pack() has written more than size() said");
            return;
        }
        cheetah_context *context = impl_->context;
        cheetah_parcel *parcel = parcel_;
        parcel_ = 0;
        size_t len = static_cast<size_t>(size_);
        if (parcel)
            checked(cheetah_commit(context, parcel, kind, id, tag));
        else if (kind == CHEETAH_FUNCTION)
            checked(cheetah_ainvoke(context, to_, id, first_, len, 0));
        else
            checked(cheetah_send(context, to_, id, tag, first_, len));
        impl_->dispatchOccasionally();
    }

private:
    Packer(const Packer &);
    Packer &operator=(const Packer &);

    enum { SPECIAL_FROM = 2048 };
    ControllerImpl *impl_;
    int to_;
    int size_;
    cheetah_parcel *parcel_;
    char *at_;
    char *first_;
    double small_[64];
    std::vector<double> large_;
};

} // namespace detail

// ---------------------------------------------------------------------------------------------------
// A context of a program. Copies are the same controller; destroying the last one finalizes it.
class Controller {
public:
    // No controller.
    Controller() : impl_(0) {}

    // Starts the contexts by the arguments, and removes its options from them: -shmem, -tcp, -mpi, -ulm,
    // -fabric PROVIDER, -np N. May return in several processes.
    Controller(int &argc, char **&argv) : impl_(new detail::ControllerImpl(argc, argv)) {}

    Controller(const Controller &other) : impl_(other.impl_)
    {
        if (impl_)
            ++impl_->references;
    }

    Controller &operator=(const Controller &other)
    {
        // `other` may be this controller.
        detail::ControllerImpl *impl = other.impl_;
        if (impl)
            ++impl->references;
        release();
        impl_ = impl;
        return *this;
    }

    ~Controller() { release(); }

    bool isValid() const { return impl_ && impl_->context && !cheetah_is_finalized(impl_->context); }
    int ncontexts() const { return cheetah_ncontexts(context()); }
    int mycontext() const { return cheetah_mycontext(context()); }

    // Copies bytes to an address in another context's memory. The local bell rings when the source may
    // be changed, the remote one when the bytes have arrived. Bells may be 0.
    void put(int to, void *remote, const void *local, int len, int *local_bell, int *remote_bell)
    {
        detail::checked(cheetah_put(context(), to, remote, local, static_cast<size_t>(len),
                                    local_bell, remote_bell));
        impl_->dispatchOccasionally();
    }

    // Copies bytes from another context's memory. The local bell rings when the bytes have arrived, the
    // remote one when the source may be changed.
    void get(int of, const void *remote, void *local, int len, int *local_bell, int *remote_bell)
    {
        detail::checked(cheetah_get(context(), of, remote, local, static_cast<size_t>(len),
                                    local_bell, remote_bell));
        impl_->dispatchOccasionally();
    }

    // Registers a function; numbers are consecutive. All contexts register the same functions in the
    // same order, which the first barrier checks.
    int registerFunction(Handler_t handler)
    {
        return add(new detail::PlainInvoker(handler), reinterpret_cast<void (*)()>(handler));
    }

    template <class A1> Function1<A1> registerFunction(void (*handler)(int, A1 &))
    {
        Function1<A1> function;
        function.id = add(new detail::Invoker1<A1>(handler), reinterpret_cast<void (*)()>(handler));
        return function;
    }

    template <class A1, class A2>
    Function2<A1, A2> registerFunction(void (*handler)(int, A1 &, A2 &))
    {
        Function2<A1, A2> function;
        function.id =
            add(new detail::Invoker2<A1, A2>(handler), reinterpret_cast<void (*)()>(handler));
        return function;
    }

    template <class A1, class A2, class A3>
    Function3<A1, A2, A3> registerFunction(void (*handler)(int, A1 &, A2 &, A3 &))
    {
        Function3<A1, A2, A3> function;
        function.id =
            add(new detail::Invoker3<A1, A2, A3>(handler), reinterpret_cast<void (*)()>(handler));
        return function;
    }

    // Invokes a function in another context. Without a bell the bytes are copied; with one they must
    // stay unchanged until it has rung.
    void ainvoke(int to, int id, const void *buf, int len, int *bell = 0)
    {
        detail::checked(
            cheetah_ainvoke(context(), to, id, buf, static_cast<size_t>(len), bell));
        impl_->dispatchOccasionally();
    }

    template <class A1> void ainvoke(int to, const Function1<A1> &function, const A1 &a1)
    {
        detail::Packer packer(implementation(), to, Serialize<CHEETAH, A1>::size(a1));
        packer.add(a1);
        packer.send(CHEETAH_FUNCTION, function.id, 0);
    }

    template <class A1, class A2>
    void ainvoke(int to, const Function2<A1, A2> &function, const A1 &a1, const A2 &a2)
    {
        detail::Packer packer(implementation(), to,
                      Serialize<CHEETAH, A1>::size(a1) + Serialize<CHEETAH, A2>::size(a2));
        packer.add(a1);
        packer.add(a2);
        packer.send(CHEETAH_FUNCTION, function.id, 0);
    }

    template <class A1, class A2, class A3>
    void ainvoke(int to, const Function3<A1, A2, A3> &function, const A1 &a1, const A2 &a2,
                 const A3 &a3)
    {
        detail::Packer packer(implementation(), to,
                      Serialize<CHEETAH, A1>::size(a1) + Serialize<CHEETAH, A2>::size(a2) +
                          Serialize<CHEETAH, A3>::size(a3));
        packer.add(a1);
        packer.add(a2);
        packer.add(a3);
        packer.send(CHEETAH_FUNCTION, function.id, 0);
    }

    // Moves bytes, rings bells, and runs the functions that other contexts have invoked.
    void poll()
    {
        implementation()->poll();
    }

    // Polls until the bell has the value or more.
    void wait(int *bell, int value)
    {
        implementation()->wait(bell, value, cheetah_limit(context()));
    }

    // As wait(), with a timeout; returns whether the value was reached. The error names the contexts
    // that do not respond.
    bool wait(int *bell, int value, int milliseconds)
    {
        return implementation()->wait(bell, value, milliseconds);
    }

    // Waits until all contexts have entered it. Then reports a failed operation that neither poll()
    // nor wait() has reported.
    void barrier()
    {
        implementation()->barrier(cheetah_limit(context()));
    }

    // A barrier in two calls: entering it, and polling until all have entered.
    void barrierBegin() { detail::checked(cheetah_barrier_begin(context())); }
    bool barrierDone()
    {
        return implementation()->barrierDone();
    }

    // Completes all operations, waits for all contexts, and ends the parallel part of the program.
    // Reports all failures that no other call has reported.
    void finalize()
    {
        implementation()->finalize();
    }

    // Allocates special memory, which other contexts read and write by loads and stores.
    void *allocate(int len)
    {
        void *memory = cheetah_allocate(context(), static_cast<size_t>(len));
        if (!memory)
            detail::failed(cheetah_error());
        return memory;
    }
    void free(void *memory) { detail::checked(cheetah_free(context(), memory)); }

    // The number of copies of payload so far.
    unsigned long copies() const { return cheetah_copies(context()); }

    // The flat interface's context.
    cheetah_context *context() const { return implementation()->context; }

private:
    friend class MatchingHandler;

    // Without a context, the program cannot continue, whatever the error handler does.
    detail::ControllerImpl *implementation() const
    {
        if (!impl_ || !impl_->context) {
            detail::failed("a controller that is not valid is used");
            _exit(1);
        }
        return impl_;
    }

    int add(detail::Invoker *invoker, void (*code)())
    {
        int id = detail::checked(cheetah_register(context(), 0, code));
        impl_->functions.push_back(invoker);
        return id;
    }

    void release()
    {
        if (impl_ && --impl_->references == 0)
            delete impl_;
        impl_ = 0;
    }

    detail::ControllerImpl *impl_;
};

// ---------------------------------------------------------------------------------------------------
// Matches messages with requests by sender and tag, whichever comes first. All contexts create their
// handlers in the same order.
class MatchingHandler {
public:
    // Must not be used before controller() is called.
    MatchingHandler() : number_(-1) {}
    explicit MatchingHandler(const Controller &c) : number_(-1) { controller(c); }
    ~MatchingHandler()
    {
        if (number_ >= 0)
            controller_.impl_->detach(number_);
    }

    const Controller &controller() const { return controller_; }
    void controller(const Controller &c)
    {
        if (number_ >= 0) {
            detail::failed("a matching handler has its controller already");
            return;
        }
        controller_ = c;
        number_ = controller_.implementation()->attach(&matcher_);
    }

    // Sends up to three values to this handler of another context. They are packed at once.
    void send(int to, int tag) { detail::Packer(controller_.implementation(), to, 0).send(CHANNEL, number(), tag); }

    template <class A1> void send(int to, int tag, const A1 &a1) { sendWith(CHEETAH(), to, tag, a1); }

    template <class A1, class A2> void send(int to, int tag, const A1 &a1, const A2 &a2)
    {
        int size = Serialize<CHEETAH, A1>::size(a1) + Serialize<CHEETAH, A2>::size(a2);
        detail::Packer packer(controller_.implementation(), to, size);
        packer.add(a1);
        packer.add(a2);
        packer.send(CHANNEL, number(), tag);
    }

    template <class A1, class A2, class A3>
    void send(int to, int tag, const A1 &a1, const A2 &a2, const A3 &a3)
    {
        int size = Serialize<CHEETAH, A1>::size(a1) + Serialize<CHEETAH, A2>::size(a2) +
                   Serialize<CHEETAH, A3>::size(a3);
        detail::Packer packer(controller_.implementation(), to, size);
        packer.add(a1);
        packer.add(a2);
        packer.add(a3);
        packer.send(CHANNEL, number(), tag);
    }

    // The same with another tag of Serialize.
    template <class Tag, class A1> void sendWith(const Tag &serializer, int to, int tag, const A1 &a1)
    {
        detail::Packer packer(controller_.implementation(), to, Serialize<Tag, A1>::size(a1));
        packer.addWith(serializer, a1);
        packer.send(CHANNEL, number(), tag);
    }

    // The same for an array.
    template <class T> void sendWith(const ARRAY &, int to, int tag, const T *values, const int &count)
    {
        detail::Packer packer(controller_.implementation(), to, Serialize<ARRAY, T>::size(values, count));
        packer.addArray(values, count);
        packer.send(CHANNEL, number(), tag);
    }

    // Requests the next message of a context and tag: f runs with the sent values, in this call or in a
    // later poll. The last argument is copied, and f gets it first.
    void request(int from, int tag, void (*f)()) { add(from, tag, new Action0(f)); }

    template <class P1> void request(int from, int tag, void (*f)(P1))
    {
        requestWith(CHEETAH(), from, tag, f);
    }
    template <class P1, class P2> void request(int from, int tag, void (*f)(P1, P2))
    {
        add(from, tag, new Action2<P1, P2>(f));
    }
    template <class P1, class P2, class P3> void request(int from, int tag, void (*f)(P1, P2, P3))
    {
        add(from, tag, new Action3<P1, P2, P3>(f));
    }
    template <class D, class U> void request(int from, int tag, void (*f)(D), const U &user)
    {
        add(from, tag, new Action0U<D>(f, user));
    }
    template <class D, class P1, class U>
    void request(int from, int tag, void (*f)(D, P1), const U &user)
    {
        requestWith(CHEETAH(), from, tag, f, user);
    }
    template <class D, class P1, class P2, class U>
    void request(int from, int tag, void (*f)(D, P1, P2), const U &user)
    {
        add(from, tag, new Action2U<D, P1, P2>(f, user));
    }

    template <class Tag, class P1>
    void requestWith(const Tag &, int from, int tag, void (*f)(P1))
    {
        add(from, tag, new Action1<Tag, P1>(f));
    }
    template <class Tag, class D, class P1, class U>
    void requestWith(const Tag &, int from, int tag, void (*f)(D, P1), const U &user)
    {
        add(from, tag, new Action1U<Tag, D, P1>(f, user));
    }

    // The same for an array.
    template <class T> void requestWith(const ARRAY &, int from, int tag, void (*f)(T *, int &))
    {
        add(from, tag, new ActionArray<T>(f));
    }

    // The number of waiting requests, and of waiting messages, of one context or of all.
    int actions(int from = -1) const { return detail::Matcher::count(matcher_.actions, from); }
    int messages(int from = -1) const { return detail::Matcher::count(matcher_.messages, from); }

private:
    MatchingHandler(const MatchingHandler &);
    MatchingHandler &operator=(const MatchingHandler &);

    enum { CHANNEL = CHEETAH_CHANNEL };

    class Action0 : public detail::Action {
    public:
        explicit Action0(void (*f)()) : f_(f) {}
        virtual void run(char *) { f_(); }

    private:
        void (*f_)();
    };

    template <class D> class Action0U : public detail::Action {
    public:
        template <class U> Action0U(void (*f)(D), const U &user) : f_(f), user_(user) {}
        virtual void run(char *) { f_(user_); }

    private:
        void (*f_)(D);
        typename detail::Plain<D>::type user_;
    };

    template <class Tag, class P1> class Action1 : public detail::Action {
    public:
        explicit Action1(void (*f)(P1)) : f_(f) {}
        virtual void run(char *buffer)
        {
            typedef typename detail::Plain<P1>::type A1;
            A1 *a1;
            Serialize<Tag, A1>::unpack(a1, buffer);
            f_(*a1);
            Serialize<Tag, A1>::cleanup(a1);
        }

    private:
        void (*f_)(P1);
    };

    template <class Tag, class D, class P1> class Action1U : public detail::Action {
    public:
        template <class U> Action1U(void (*f)(D, P1), const U &user) : f_(f), user_(user) {}
        virtual void run(char *buffer)
        {
            typedef typename detail::Plain<P1>::type A1;
            A1 *a1;
            Serialize<Tag, A1>::unpack(a1, buffer);
            f_(user_, *a1);
            Serialize<Tag, A1>::cleanup(a1);
        }

    private:
        void (*f_)(D, P1);
        typename detail::Plain<D>::type user_;
    };

    template <class P1, class P2> class Action2 : public detail::Action {
    public:
        explicit Action2(void (*f)(P1, P2)) : f_(f) {}
        virtual void run(char *buffer)
        {
            typedef typename detail::Plain<P1>::type A1;
            typedef typename detail::Plain<P2>::type A2;
            A1 *a1;
            A2 *a2;
            buffer += Serialize<CHEETAH, A1>::unpack(a1, buffer);
            Serialize<CHEETAH, A2>::unpack(a2, buffer);
            f_(*a1, *a2);
            Serialize<CHEETAH, A1>::cleanup(a1);
            Serialize<CHEETAH, A2>::cleanup(a2);
        }

    private:
        void (*f_)(P1, P2);
    };

    template <class D, class P1, class P2> class Action2U : public detail::Action {
    public:
        template <class U> Action2U(void (*f)(D, P1, P2), const U &user) : f_(f), user_(user) {}
        virtual void run(char *buffer)
        {
            typedef typename detail::Plain<P1>::type A1;
            typedef typename detail::Plain<P2>::type A2;
            A1 *a1;
            A2 *a2;
            buffer += Serialize<CHEETAH, A1>::unpack(a1, buffer);
            Serialize<CHEETAH, A2>::unpack(a2, buffer);
            f_(user_, *a1, *a2);
            Serialize<CHEETAH, A1>::cleanup(a1);
            Serialize<CHEETAH, A2>::cleanup(a2);
        }

    private:
        void (*f_)(D, P1, P2);
        typename detail::Plain<D>::type user_;
    };

    template <class P1, class P2, class P3> class Action3 : public detail::Action {
    public:
        explicit Action3(void (*f)(P1, P2, P3)) : f_(f) {}
        virtual void run(char *buffer)
        {
            typedef typename detail::Plain<P1>::type A1;
            typedef typename detail::Plain<P2>::type A2;
            typedef typename detail::Plain<P3>::type A3;
            A1 *a1;
            A2 *a2;
            A3 *a3;
            buffer += Serialize<CHEETAH, A1>::unpack(a1, buffer);
            buffer += Serialize<CHEETAH, A2>::unpack(a2, buffer);
            Serialize<CHEETAH, A3>::unpack(a3, buffer);
            f_(*a1, *a2, *a3);
            Serialize<CHEETAH, A1>::cleanup(a1);
            Serialize<CHEETAH, A2>::cleanup(a2);
            Serialize<CHEETAH, A3>::cleanup(a3);
        }

    private:
        void (*f_)(P1, P2, P3);
    };

    template <class T> class ActionArray : public detail::Action {
    public:
        explicit ActionArray(void (*f)(T *, int &)) : f_(f) {}
        virtual void run(char *buffer)
        {
            T *values;
            int count;
            Serialize<ARRAY, T>::unpack(values, buffer, count);
            f_(values, count);
            Serialize<ARRAY, T>::cleanup(values);
        }

    private:
        void (*f_)(T *, int &);
    };

    int number() const
    {
        if (number_ < 0)
            detail::failed("a matching handler without a controller is used");
        return number_;
    }

    void add(int from, int tag, detail::Action *action)
    {
        number();
        if (from < 0 || from >= controller_.ncontexts()) {
            delete action;
            detail::failed("a request of a context that is not there");
            return;
        }
        detail::Matcher::Key key(from, tag);
        detail::Matcher::Messages::iterator at = matcher_.messages.find(key);
        if (at == matcher_.messages.end()) {
            matcher_.actions[key].push_back(action);
            return;
        }
        detail::Ready now = {action, at->second.front()};
        at->second.pop_front();
        if (at->second.empty())
            matcher_.messages.erase(at);
        controller_.impl_->ready.push_back(now);
        controller_.impl_->dispatch();
    }

    Controller controller_;
    int number_;
    detail::Matcher matcher_;
};

} // namespace Cheetah

#endif
