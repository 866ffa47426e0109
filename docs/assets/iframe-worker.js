// Browsers do not run web workers, such as the site's search, on pages opened as local files. On such pages only, run
// its script in a hidden frame. (The theme would load a replacement from the network.)
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      document.body.appendChild(this.frame)
      const inside = this.frame.contentWindow
      inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
      const script = inside.document.createElement("script")
      this.ready = new Promise(resolve => (script.onload = resolve))
      script.src = url
      inside.document.body.appendChild(script)
    }

    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })))
    }

    terminate() {
      this.frame.remove()
    }
  }
}
