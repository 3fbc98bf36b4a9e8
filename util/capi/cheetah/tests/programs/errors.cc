// Reports of errors: the first argument selects the error.

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <iostream>
#include <string>

#include "Cheetah/Cheetah.h"

static int noted_g = 0;

static void note(const char *sentence)
{
    ++noted_g;
    std::cout << "noted: " << sentence << std::endl;
}

static void nothing(int, int, void *, int) {}
static void other(int, int, void *, int) {}
static void waits(int, int, void *, int);
static void takeNumber(int &) {}

// Its size() is smaller than what pack() writes.
struct Liar {};

namespace Cheetah {
template <> class Serialize<CHEETAH, Liar> {
public:
    static int size(const Liar &) { return 8; }
    static int pack(const Liar &, char *) { return 16; }
    static int unpack(Liar *&, char *) { return 16; }
    static void cleanup(Liar *) {}
};
} // namespace Cheetah

static Cheetah::Controller *controller_g = 0;

static void waits(int, int, void *, int) { controller_g->barrier(); }

static void throwNoted(const char *sentence)
{
    note(sentence);
    throw 1;
}

// Puts 100 bytes to an address of the next context that is no memory, waits until they may be
// changed. The mode `how` selects how the failure is reported.
static void failPut(Cheetah::Controller &c, const std::string &how)
{
    static char bytes[100], remote = 0;
    int me = c.mycontext(), next = (me + 1) % c.ncontexts();
    int put = 0, got = 0;
    char local = 1;
    if (how == "reported") {
        c.put(me, reinterpret_cast<void *>(0x30), bytes, 100, &put, 0);
        c.wait(&put, 1, 10000);
    } else {
        c.put(next, reinterpret_cast<void *>(0x30), bytes, 100, &put, 0);
        c.wait(&put, 1);
        // The response of the same context arrives after the failure of the put.
        c.get(next, &remote, &local, 1, &got, 0);
        c.wait(&got, 1);
    }
}

static void endAs(Cheetah::Controller &c, const std::string &how)
{
    if (how == "barrier" || how == "reported")
        c.barrier();
    if (how == "halves") {
        c.barrierBegin();
        while (!c.barrierDone()) {
        }
    }
    if (how == "barrier" || how == "halves" || how == "reported")
        std::cout << "after the barrier: " << noted_g << std::endl;
    if (how == "finalize" || how == "reported") {
        c.finalize();
        std::cout << "after finalize: " << noted_g << std::endl;
    }
    // Else the destructor ends it.
}

int main(int argc, char **argv)
{
    Cheetah::Controller c(argc, argv);
    controller_g = &c;
    std::string mode(argc > 1 ? argv[1] : "");
    int me = c.mycontext(), next = (me + 1) % c.ncontexts();
    if (mode == "put") {
        std::string how(argv[2]), taker(argv[3]);
        if (taker == "note")
            Cheetah::onError(note);
        if (taker == "throw")
            Cheetah::onError(throwNoted);
        if (me == atoi(argv[4]))
            failPut(c, how);
        else
            noted_g = -1;
        endAs(c, how);
    } else if (mode == "mismatch") {
        c.registerFunction(me == 1 ? other : nothing);
        c.barrier();
    } else if (mode == "pointer") {
        Cheetah::onError(note);
        c.barrier();
        int bell = 0;
        char byte = 1;
        if (me == 0) {
            c.put(next, reinterpret_cast<void *>(0x10), &byte, 1, &bell, 0);
            c.get(next, reinterpret_cast<void *>(0x20), &byte, 1, &bell, 0);
            // One error may arrive before the other, and ends a wait.
            while (noted_g < 2)
                c.poll();
        }
        c.barrier();
        std::cout << "lives" << std::endl;
    } else if (mode == "death") {
        c.barrier();
        if (me == 1) {
            // The others have left the barrier, or will leave it.
            usleep(200000);
            kill(getpid(), SIGKILL);
        }
        int bell = 0;
        c.wait(&bell, 1);
    } else if (mode == "handler") {
        Cheetah::onError(note);
        int id = c.registerFunction(waits);
        c.barrier();
        c.ainvoke(me, id, 0, 0);
        c.poll();
    } else if (mode == "overrun") {
        Cheetah::onError(note);
        Cheetah::MatchingHandler handler(c);
        handler.send(next, 1, Liar());
    } else if (mode == "arguments") {
        Cheetah::onError(note);
        int id = c.registerFunction(nothing), word = 0;
        Cheetah::MatchingHandler handler(c);
        c.barrier();
        c.put(next, &word, &word, -1, 0, 0);
        c.put(next, &word, 0, 4, 0, 0);
        c.put(77, &word, &word, 4, 0, 0);
        c.get(next, &word, &word, -4, 0, 0);
        c.get(next, &word, 0, 4, 0, 0);
        c.get(-1, &word, &word, 4, 0, 0);
        c.ainvoke(next, id, &word, -1);
        c.ainvoke(next, id, 0, 4);
        c.ainvoke(next, id + 1, &word, 4);
        c.ainvoke(c.ncontexts(), id, &word, 4);
        handler.send(-2, 1, word);
        handler.request(99, 1, takeNumber);
        c.free(&word);
        c.poll();
        c.barrier();
        if (me == 0)
            std::cout << "noted " << noted_g << " errors" << std::endl;
    } else if (mode == "late") {
        Cheetah::onError(note);
        c.finalize();
        c.poll();
    } else if (mode == "timeout") {
        Cheetah::onError(note);
        c.barrier();
        int bell = 0;
        if (c.wait(&bell, 1, 100))
            return 3;
    }
    return 0;
}
