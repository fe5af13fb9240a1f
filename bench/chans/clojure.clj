;; The jobs of bench/chans in core.async, as one writes them there: go loops
;; around it, channels of 64. Prints a line for each, name TAB nanoseconds an item
;; (the median of the rounds), after a line that says what was measured.
(ns chans
  (:require [clojure.core.async :as a :refer [<! <!! >! >!! chan close! go go-loop]]
            [clojure.java.io :as io])
  (:import java.util.Properties))

(def buffer 64)

(defn version []
  (with-open [in (io/input-stream (io/resource "META-INF/maven/org.clojure/core.async/pom.properties"))]
    (.getProperty (doto (Properties.) (.load in)) "version")))

(defn expect [got want]
  (when (not= got want)
    (throw (ex-info "wrong number of items" {:got got :want want}))))

(defn feed [to items]
  (go-loop [i 0]
    (if (< i items)
      (do (>! to i) (recur (inc i)))
      (close! to))))

(defn counted [from]
  (go-loop [n 0]
    (if (some? (<! from)) (recur (inc n)) n)))

(defn pipeline [items]
  (let [from (chan buffer) to (chan buffer)]
    (feed from items)
    (a/pipeline 4 to (map inc) from)
    (expect (<!! (counted to)) items)))

(defn chain [items]
  (let [from (chan buffer)
        to (chan buffer (comp (map inc)
                              (remove #(zero? (rem % 8)))
                              (map #(* 2 %))
                              (dedupe)
                              (map dec)))]
    (feed from items)
    (a/pipe from to)
    (expect (<!! (counted to)) (- items (quot items 8)))))

(def room 4096)

(defn with-room [make items]
  (dotimes [_ (quot items room)]
    (let [c (chan (make room))]
      (dotimes [i room] (>!! c i)))))

(defn full [make items]
  (let [c (chan (make buffer))]
    (dotimes [i items] (>!! c i))))

(defn mult [room items]
  (let [from (chan buffer)
        m (a/mult from)
        made (repeatedly 4 #(if (pos? room) (chan room) (chan)))
        taps (doall (map #(a/tap m %) made))
        counts (mapv counted taps)]
    (feed from items)
    (doseq [c counts] (expect (<!! c) items))))

(def jobs
  [["pipeline/4 workers" 10000 pipeline]
   ["chain/5 transducers" 50000 chain]
   ["put/dropping with room" 65536 (partial with-room a/dropping-buffer)]
   ["put/sliding with room" 65536 (partial with-room a/sliding-buffer)]
   ["put/dropping when full" 65536 (partial full a/dropping-buffer)]
   ["put/sliding when full" 65536 (partial full a/sliding-buffer)]
   ["mult/4 taps" 10000 (partial mult buffer)]
   ["mult/4 taps unbuffered" 10000 (partial mult 0)]])

(defn nanos [job items]
  (System/gc)
  (let [start (System/nanoTime)]
    (job items)
    (/ (double (- (System/nanoTime) start)) items)))

(defn median [xs] (nth (sort xs) (quot (count xs) 2)))

(let [rounds (parse-long (or (first *command-line-args*) "15"))]
  (println (str "core.async " (version) ", Clojure " (clojure-version) ", "
                (System/getProperty "java.vm.name") " " (System/getProperty "java.runtime.version")))
  (doseq [[name items job] jobs]
    (dotimes [_ 10] (job items)) ; until the JVM has compiled it
    (println (str name "\t" (format "%.1f" (median (repeatedly rounds #(nanos job items)))))))
  (shutdown-agents))
